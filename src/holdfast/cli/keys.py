"""`holdfast keys`: make a key, and bring what is kept to the current one."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated

import msgspec
import typer

from holdfast.app import open_store
from holdfast.cli.context import AsJson, os_actor, print_result
from holdfast.config import load_config
from holdfast.kit.audit import AUDIT_KEY, AuditHead, AuditHeadFields, CheckpointFile, sign_heads
from holdfast.kit.audit.checkpoints import FILE
from holdfast.kit.vault import Rotation, Vault, new_key, rotate
from holdfast.logs import log_to_stderr
from holdfast.model import schema_of
from holdfast.runtime import (
    KIT_PART,
    derived_keys,
    documents_of,
    find_services,
    has_documents,
    sealed_fields,
    select_services,
    vault_of,
)
from holdfast.service import Service
from holdfast.store import MigrationRequest

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
    `holdfast keys rotate` says so.
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

    Start every process with the new key first. What an old key has signed that can't be signed again, such as
    the tokens of push channels, is listed with the time until which the old key must stay: without it,
    notifications would be refused. The ends of the audit trails are signed by the current key; a trail of an
    earlier release gets its first signature, and an event in its tenant's trail says so.

    Exit code 1 when something could not be opened or verified with any of the keys.
    """

    log_to_stderr()
    done, heads, until = asyncio.run(_rotate())
    unreadable = [name for rotation in done for name in rotation.unreadable]
    forged = [f"{one.collection}/{tenant_id}" for one in heads for tenant_id in one.forged]
    lines = [f"{one.collection}: {one.resealed} sealed with {one.key_id}" for one in done]
    lines += [f"{one.collection}: {one.signed} signed" for one in heads]
    lines += [f"can't be opened: {name}" for name in unreadable]
    lines += [f"authenticated by none of the keys: {name}" for name in forged]
    lines += [f"keep the old keys until {one.until:%Y-%m-%d %H:%M} UTC: {one.signs}" for one in until]
    shown = {"rotations": done, "auditHeads": heads, "oldKeys": until}
    print_result(shown, "\n".join(lines), as_json=as_json)
    if unreadable or forged:
        raise typer.Exit(1)


class SignedHeads(msgspec.Struct, frozen=True):
    """How many heads of audit trails were signed by the current key, and whose no key authenticates."""

    collection: str
    signed: int
    forged: list[str]


class OldKeyUse(msgspec.Struct, frozen=True):
    """What an old key may have signed that is still out, and until when."""

    signs: str
    until: datetime


async def _rotate() -> tuple[list[Rotation], list[SignedHeads], list[OldKeyUse]]:
    config, installed = load_config(), find_services()
    # Not the services themselves: what they seal must be reached even where one could not start.
    store = await open_store(config.store, documents_of(installed), env=config.prefix)
    try:
        chosen = select_services(installed, config.services)
        # What a service that is no longer chosen has sealed would be lost with the old key.
        services = [one for one in installed if one in chosen or await has_documents(store, one.documents)]
        await store.migrate(MigrationRequest(only=tuple(map(schema_of, documents_of(services)))))
        vault = vault_of(config)
        done = [
            await rotate(vault, kind, fields=fields, store=store, report=_progress)
            for kind, fields in sealed_fields(services).items()
        ]
        kinds = [kind for kind in documents_of(services) if issubclass(kind, AuditHeadFields)]
        keys = vault.secrets(AUDIT_KEY.purpose)
        recorded = CheckpointFile(config.home / FILE).read()
        heads = []
        for kind in kinds:
            # The names of services' trails are not known here, so a checkpoint of any of them counts.
            tenants = {tenant for trail, tenant in recorded if (trail == KIT_PART) == (kind is AuditHead)}
            result = await sign_heads(store, kind, keys, actor=os_actor(), recorded=tenants)
            heads.append(SignedHeads("/".join(schema_of(kind).path.names), *result))
        return done, heads, _old_key_uses(vault, done, services, now=store.clock.now())
    finally:
        await store.close()


def _old_key_uses(
    vault: Vault, done: Sequence[Rotation], services: Sequence[Service], *, now: datetime
) -> list[OldKeyUse]:
    """What the old keys are still needed for, counted from the first rotation to the current one."""
    if len(vault.secrets(AUDIT_KEY.purpose)) < 2:
        return []
    began_at = min((one.started_at for one in done), default=now)
    uses = [OldKeyUse(k.signs, began_at + timedelta(seconds=k.lasts_s)) for k in derived_keys(services)]
    return [one for one in uses if one.until > now]


def _progress(rotation: Rotation) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(
            f"\r{rotation.collection}: walk {rotation.walk}, {rotation.seen_in_walk} seen, "
            f"{rotation.resealed} sealed anew"
        )
        if rotation.state == "finished":
            sys.stderr.write("\n")
