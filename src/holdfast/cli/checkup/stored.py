"""The store and the services: what is kept, and whether it fits what is declared."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from holdfast.app import open_store
from holdfast.config import Config, redact
from holdfast.errors import ConfigError, HoldfastError
from holdfast.kit.access import Tokens
from holdfast.kit.schedules import Schedule
from holdfast.kit.vault import Vault, new_key
from holdfast.runtime import BACKLOG_S_MAX, KEYS_FILE, KIT_DOCUMENTS, Runtime, find_services, settings_of
from holdfast.service import Finding, Service
from holdfast.store import Store

REACH_S: Final = 10.0
_SQLITE: Final = "sqlite:///"


async def stored(config: Config) -> AsyncIterator[Finding]:
    """Every check that needs the store or the services."""
    services = find_services()
    sound = True
    for finding in (settings(service, config) for service in services):
        sound = sound and finding.fine
        yield finding
    if (missing := _missing_file(config.store)) is not None:
        # Opening it would make it, and looking must change nothing.
        remedy = "start `holdfast serve`: it makes the store"
        yield Finding("store", False, f"there is no store at {missing} yet", remedy)
        return
    try:
        store = await asyncio.wait_for(_open(config, services), REACH_S)
    except (HoldfastError, OSError, TimeoutError) as fault:
        said = fault.message if isinstance(fault, HoldfastError) else str(fault) or "no answer"
        remedy = "check HOLDFAST_STORE, that the server runs, and that this user may write there"
        yield Finding("store", False, f"{redact(config.store)} can't be opened: {said}", remedy)
        return
    try:
        yield Finding("store", True, f"{redact(config.store)} answers")
        async for finding in _in(store, config, services if sound else []):
            yield finding
    finally:
        await store.close()


def settings(service: Service, config: Config) -> Finding:
    name = f"settings of {service.address}"
    try:
        settings_of(service, config)
    except ConfigError as fault:
        return Finding(name, False, fault.message, f"correct [services.{service.name}] in holdfast.toml")
    return Finding(name, True, "fit")


def _missing_file(url: str) -> Path | None:
    if not url.startswith(_SQLITE):
        return None
    file = Path(unquote(url.removeprefix(_SQLITE).partition("?")[0]))
    return None if file.exists() else file


async def _open(config: Config, services: Sequence[Service]) -> Store:
    documents = [*KIT_DOCUMENTS, *(kind for service in services for kind in service.documents)]
    return await open_store(config.store, documents, env=config.prefix)


async def _in(store: Store, config: Config, services: Sequence[Service]) -> AsyncIterator[Finding]:
    changes = await store.diff()
    if changes:
        remedy = "start `holdfast serve` or `holdfast work`: they bring it up to date"
        yield Finding("schema", False, f"{len(changes)} changes are waiting, first: {changes[0]}", remedy)
        return
    yield Finding("schema", True, "the store is as declared")
    yield await _tokens(store)
    # Nothing is sealed or opened here, so a vault without the real keys does.
    runtime = Runtime(config, store, services, vault=_vault(config))
    yield await _backlog(runtime)
    yield await _schedules(runtime)
    for parts in runtime.parts.values():
        for check in parts.checks:
            yield await check()


def _vault(config: Config) -> Vault:
    file = config.home / KEYS_FILE
    try:
        return Vault.from_settings(config.keys or file.read_text())
    except (ConfigError, OSError):
        return Vault.from_settings(new_key("none"))


async def _tokens(store: Store) -> Finding:
    found, _ = await Tokens(store).listed(limit=1)
    if found:
        return Finding("tokens", True, "there are API tokens")
    return Finding("tokens", True, "nobody can call yet: `holdfast tokens create admin --role admin`")


async def _backlog(runtime: Runtime) -> Finding:
    old = {name: s for name, s in (await runtime.backlog()).items() if s > BACKLOG_S_MAX}
    if not old:
        return Finding("backlog", True, "nothing due waits for long")
    said = ", ".join(f"{name} for {s:.0f} s" for name, s in old.items())
    return Finding("backlog", False, f"due work waits: {said}", "run `holdfast work`, or more of them")


async def _schedules(runtime: Runtime) -> Finding:
    jobs = [job for parts in runtime.parts.values() for job in parts.jobs]
    found = await runtime.store.privileged().get_many(Schedule, [job.id for job in jobs]) if jobs else []
    missing = [job.name for job, stored in zip(jobs, found, strict=True) if stored is None]
    if missing:
        remedy = "start `holdfast serve` or `holdfast work` once: they declare them"
        return Finding("schedules", False, f"not declared yet: {', '.join(missing)}", remedy)
    return Finding("schedules", True, f"{len(jobs)} declared")
