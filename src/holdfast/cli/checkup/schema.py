"""The store and the services: what is kept, and whether it fits what is declared."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from holdfast.app import open_store, storage_report
from holdfast.cli.checkup.machine import disk
from holdfast.cli.checkup.operations import kept
from holdfast.cli.schema import DEPLOY_COMMANDS
from holdfast.config import Config, redact
from holdfast.errors import ConfigError, HoldfastError
from holdfast.kit import NO_TENANT
from holdfast.kit.processes import SchemaState
from holdfast.kit.vault import Vault, new_key
from holdfast.plural import plural
from holdfast.runtime import (
    KEYS_FILE,
    Runtime,
    documents_of,
    find_services,
    keys_in,
    select_services,
    settings_of,
)
from holdfast.service import CheckResult, Service
from holdfast.store import ABSENT, Store, check

REACH_S: Final = 10.0
LOCKED_S: Final = 3.0
_SQLITE: Final = "sqlite:///"
_REMEDIES: Final = {
    'role "': "make that user in the database, or name another in HOLDFAST_STORE",
    'database "': "make that database (createdb), or name another in HOLDFAST_STORE",
    "password": "correct the user and password in HOLDFAST_STORE",
    "pip install": "install what the message names",
    "read-only": "name the primary server in HOLDFAST_STORE, or let this one be written",
}


async def stored(config: Config, *, integrity: bool) -> AsyncIterator[CheckResult]:
    """Every check that needs the store or the services; with `integrity` all of a file's pages."""
    installed = find_services()
    try:
        services = select_services(installed, config.services)
    except ConfigError as fault:
        yield CheckResult("services", False, fault.message, "correct `services` (HOLDFAST_SERVICES)")
        return
    sound = True
    for finding in (settings(service, config) for service in services):
        sound = sound and finding.fine
        yield finding
    for finding in strangers(installed, config):
        yield finding
    if (missing := _missing_file(config.store)) is not None:
        # Opening it would make it, and looking must change nothing.
        remedy = "start `holdfast serve`: it makes the store"
        yield CheckResult("store", False, f"there is no store at {missing} yet", remedy)
        return
    try:
        store, changes = await asyncio.wait_for(_reach(config, services), REACH_S)
    except (HoldfastError, OSError, TimeoutError) as fault:
        said = fault.message if isinstance(fault, HoldfastError) else str(fault) or "no answer"
        yield CheckResult("store", False, f"{redact(config.store)} can't be used: {said}", _remedy(said))
        return
    try:
        yield CheckResult("store", True, f"{redact(config.store)} answers")
        for finding in (findings := await storage(store, integrity=integrity)):
            yield finding
        if not all(finding.fine for finding in findings if finding.name == "integrity"):
            return
        async for finding in _in(store, config, services if sound else [], changes=changes):
            yield finding
    finally:
        await store.close()


async def storage(store: Store, *, integrity: bool) -> list[CheckResult]:
    """The size of a store's file, the room on its disk and, where asked for, whether its pages are sound."""
    report = await storage_report(store, integrity=integrity)
    if report is None:
        return []
    free = f"{report.free_bytes / 1e6:,.0f} MB of it free for new documents"
    findings = [
        CheckResult("file", True, f"{report.path} has {report.bytes / 1e6:,.0f} MB, {free}"),
        disk(Path(report.path).resolve(), "store disk"),
    ]
    if integrity:
        said = "; ".join(report.faults) or "every page is sound"
        remedy = "stop what uses the store and restore the newest backup" if report.faults else ""
        findings.append(CheckResult("integrity", not report.faults, said, remedy))
    return findings


def _remedy(said: str) -> str:
    """What to do about a store that refuses, by its error."""
    for word, remedy in _REMEDIES.items():
        if word in said:
            return remedy
    return "check HOLDFAST_STORE, that the server runs, and that this user may write there"


def settings(service: Service, config: Config) -> CheckResult:
    name = f"settings of {service.address}"
    try:
        settings_of(service, config)
    except ConfigError as fault:
        return CheckResult(name, False, fault.message, f"correct [service.{service.name}] in holdfast.toml")
    return CheckResult(name, True, "fit")


def strangers(services: Sequence[Service], config: Config) -> Iterator[CheckResult]:
    """Settings that nobody reads, because no service has that name."""
    names = [service.name for service in services]
    for name in sorted(config.service_settings.keys() - set(names)):
        close = difflib.get_close_matches(name, names, n=1)
        meant = f"did you mean [service.{close[0]}]?" if close else f"there are: {', '.join(names)}"
        said = f"[service.{name}]: there is no service of that name, so nobody reads it"
        yield CheckResult(
            f"settings of {name}", False, said, f"{meant}; correct or delete it in holdfast.toml"
        )


def _missing_file(url: str) -> Path | None:
    if not url.startswith(_SQLITE):
        return None
    file = Path(unquote(url.removeprefix(_SQLITE).partition("?")[0]))
    return None if file.exists() else file


async def _reach(config: Config, services: Sequence[Service]) -> tuple[Store, list[str]]:
    """The store once it has really answered, with what `migrate` would do to it."""
    url = config.store
    if url.startswith(_SQLITE) and "busy_s=" not in url:
        # A check that waits half a minute for a lock helps nobody.
        url += f"{'&' if '?' in url else '?'}busy_s={LOCKED_S:g}"
    store = await open_store(url, documents_of(services), env=config.prefix)
    try:
        if not (changes := await store.diff()):
            # Changes nothing, and fails where nothing can be written.
            await store.tenant(NO_TENANT).commit(check(SchemaState, "doctor", expect=ABSENT))
        return store, changes
    except BaseException:
        await store.close()
        raise


async def _in(
    store: Store, config: Config, services: Sequence[Service], *, changes: Sequence[str]
) -> AsyncIterator[CheckResult]:
    if changes:
        remedy = "start `holdfast serve` or `holdfast work`: they bring it up to date"
        yield CheckResult(
            "schema",
            False,
            f"{plural(len(changes), 'change is', 'changes are')} waiting, first: {changes[0]}",
            remedy,
        )
        return
    yield CheckResult("schema", True, "the store is as declared")
    yield _deployment(await store.undeployed())
    # Nothing is sealed here, so a vault without the real keys does.
    runtime = Runtime(config, store, services, vault=_vault(config))
    try:
        async for finding in kept(runtime):
            yield finding
        for name, parts in runtime.parts.items():
            for check in parts.checks:
                yield await _checked(name, check)
    finally:
        await runtime.close_parts()


def _deployment(undeployed: Sequence[str]) -> CheckResult:
    """Report the indexes and rules that people deploy, and that nobody has confirmed."""
    if not undeployed:
        return CheckResult("deployed schema", True, "nothing is left to deploy")
    said = f"{len(undeployed)} can't be confirmed as deployed: {'; '.join(undeployed)}"
    return CheckResult("deployed schema", False, said, "; then ".join(DEPLOY_COMMANDS))


async def _checked(service: str, check: Callable[[], Awaitable[CheckResult]]) -> CheckResult:
    """A service's own check; one that falls over is a finding too."""
    try:
        return await check()
    except HoldfastError as fault:
        return CheckResult(service, False, fault.message, "see the message; it names what to change")


def _vault(config: Config) -> Vault:
    file = config.home / KEYS_FILE
    try:
        return Vault.from_settings(config.keys or keys_in(file), legacy_key=config.legacy_key or None)
    except (ConfigError, OSError):
        return Vault.from_settings(new_key("none"))
