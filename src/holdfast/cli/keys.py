"""`holdfast keys`: make a key, seal everything again with it, drop an old one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated

import msgspec
import typer

from holdfast.app import open_store
from holdfast.cli.context import AsJson, os_actor, print_result
from holdfast.config import Config, load_config
from holdfast.errors import ConflictError, NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.audit import (
    AUDIT_KEY,
    Audit,
    AuditEntry,
    AuditHead,
    AuditHeadFields,
    CheckpointFile,
    sign_heads,
)
from holdfast.kit.audit.checkpoints import FILE
from holdfast.kit.channels.key_uses import renew_channels
from holdfast.kit.vault import Rotation, Vault, new_key, rotate
from holdfast.logs import log_to_stderr
from holdfast.model import schema_of
from holdfast.runtime import (
    KEYS_FILE,
    KIT_PART,
    documents_of,
    find_services,
    has_documents,
    sealed_fields,
    select_services,
    vault_of,
)
from holdfast.runtime.key_uses import KeyUse, old_key_uses
from holdfast.runtime.settings import remove_key
from holdfast.service import Service
from holdfast.store import MigrationRequest, Store

commands = typer.Typer(no_args_is_help=True)


@commands.command("new")
def new_command(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="A name that no key had before.")],
    as_json: AsJson = False,
) -> None:
    """Make a key, as HOLDFAST_KEYS takes it; it is shown once and kept nowhere.

    \b
    Example:
      export HOLDFAST_KEYS="$(holdfast keys new 2026-11),$HOLDFAST_KEYS"

    The first key seals; all of them open. Take an old one out when
    `holdfast keys drop` says so.
    While HOLDFAST_KEYS is not set, the key is in the file `keys` of the home: put that one after the new one.
    """
    key = new_key(key_id)
    print_result({"key": key}, key, as_json=as_json)


@commands.command("rotate")
def rotate_command(as_json: AsJson = False) -> None:
    """Seal everything again under the current key, while it is in use; goes on after a crash.

    \b
    Example:
      holdfast keys rotate

    Start every process with the new key first. The ends of the audit trails are signed by the current key; a
    trail of an earlier release gets its first signature, and an event in its tenant's trail says so. Push
    channels are replaced by ones of the current key, by the processes that run. What still needs an old key
    is listed, with the time until which it must stay: run this again later, then `holdfast keys drop`.

    Exit code 1 when something could not be opened or verified with any of the keys.
    """

    log_to_stderr()
    done, heads, uses = asyncio.run(_rotate())
    unreadable = [name for rotation in done for name in rotation.unreadable]
    forged = [f"{one.collection}/{tenant_id}" for one in heads for tenant_id in one.forged]
    lines = [f"{one.collection}: {one.resealed} sealed with {one.key_id}" for one in done]
    lines += [f"{one.collection}: {one.signed} signed" for one in heads]
    lines += [f"can't be opened: {name}" for name in unreadable]
    lines += [f"authenticated by none of the keys: {name}" for name in forged]
    lines += map(str, uses)
    shown = {"rotations": done, "auditHeads": heads, "oldKeys": uses}
    print_result(shown, "\n".join(lines), as_json=as_json)
    if unreadable or forged:
        raise typer.Exit(1)


@commands.command("drop")
def drop_command(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="An old key.")],
    force: Annotated[
        bool, typer.Option("--force", help="Drop it although something still needs it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove an old key once nothing needs it; refused, with what and until when, while something does.

    \b
    Example:
      holdfast keys drop 2025-07

    A key in the file `keys` of the home is removed from it. Where HOLDFAST_KEYS is set, this only checks:
    take the key out there. Then restart every process.
    """

    log_to_stderr()
    removed = asyncio.run(_drop(key_id, force=force))
    text = (
        f"{key_id} is removed; restart every process"
        if removed
        else f"{key_id} can be taken out of HOLDFAST_KEYS"
    )
    print_result({"key": key_id, "removed": removed}, text, as_json=as_json)


class SignedHeads(msgspec.Struct, frozen=True):
    """How many heads of audit trails were signed by the current key, and whose no key authenticates."""

    collection: str
    signed: int
    forged: list[str]


async def _rotate() -> tuple[list[Rotation], list[SignedHeads], list[KeyUse]]:
    config = load_config()
    vault = vault_of(config)
    async with _opened(config) as (store, services):
        done = [
            await rotate(vault, kind, fields=fields, store=store, report=_progress)
            for kind, fields in sealed_fields(services).items()
        ]
        heads = await _sign_heads(store, vault, config, services)
        await renew_channels(store, vault.current_key)
        return done, heads, await old_key_uses(store, vault, services)


async def _sign_heads(
    store: Store, vault: Vault, config: Config, services: Sequence[Service]
) -> list[SignedHeads]:
    keys, recorded = tuple(vault.secrets(AUDIT_KEY).values()), CheckpointFile(config.home / FILE).read()
    heads = []
    for kind in documents_of(services):
        if issubclass(kind, AuditHeadFields):
            # The names of services' trails are not known here, so a checkpoint of any of them counts.
            tenants = {tenant for trail, tenant in recorded if (trail == KIT_PART) == (kind is AuditHead)}
            result = await sign_heads(store, kind, keys, actor=os_actor(), recorded=tenants)
            heads.append(SignedHeads("/".join(schema_of(kind).path.names), *result))
    return heads


async def _drop(key_id: str, *, force: bool) -> bool:
    """Whether the key was removed from the key file; it is not there where HOLDFAST_KEYS is set."""
    config = load_config()
    vault = vault_of(config)
    if key_id not in vault.key_ids:
        raise NotFoundError(f"there is no key {key_id!r}: {', '.join(vault.key_ids)}")
    if key_id == vault.current_key:
        raise ConflictError(f"{key_id!r} is the current key: put a new one before it (`holdfast keys new`)")
    async with _opened(config) as (store, services):
        uses = [one for one in await old_key_uses(store, vault, services) if one.key_id == key_id]
        if uses and not force:
            needed = "; ".join(map(str, uses))
            raise ConflictError(f"{needed}. Run `holdfast keys rotate`, or drop it with --force")
        if config.keys:
            return False
        details = {"uses": [str(one) for one in uses]}
        entry = AuditEntry(action="key.dropped", actor=os_actor(), subject=key_id, details=details)
        await Audit(store, NO_TENANT, keys=tuple(vault.secrets(AUDIT_KEY).values())).append(entry)
    remove_key(config.home / KEYS_FILE, key_id)
    return True


@asynccontextmanager
async def _opened(config: Config) -> AsyncIterator[tuple[Store, list[Service]]]:
    """The store, and the services whose documents are or may be there."""
    installed = find_services()
    # Not the services themselves: what they seal must be reached even where one could not start.
    store = await open_store(config.store, documents_of(installed), env=config.prefix)
    try:
        chosen = select_services(installed, config.services)
        # What a service that is no longer chosen has sealed would be lost with the old key.
        services = [one for one in installed if one in chosen or await has_documents(store, one.documents)]
        await store.migrate(MigrationRequest(only=tuple(map(schema_of, documents_of(services)))))
        yield store, services
    finally:
        await store.close()


def _progress(rotation: Rotation) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(
            f"\r{rotation.collection}: walk {rotation.walk}, {rotation.seen_in_walk} seen, "
            f"{rotation.resealed} re-encrypted"
        )
        if rotation.state == "finished":
            sys.stderr.write("\n")
