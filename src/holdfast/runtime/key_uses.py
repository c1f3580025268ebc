"""What still depends on the vault's old keys, so that none is removed too early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.kit.audit import AUDIT_KEY, AuditHeadFields, count_heads
from holdfast.kit.channels.key_uses import channels_of_key
from holdfast.kit.processes import describe, living_processes
from holdfast.kit.vault import DerivedKey, Rotation, Vault, count_by_key
from holdfast.model import Document, schema_of
from holdfast.runtime.document_registry import documents_of, key_register
from holdfast.service import Service
from holdfast.store import Query, Store


class KeyUse(msgspec.Struct, frozen=True, rename="camel"):
    """What a key is needed for, and until when; None: until that is sealed or signed by the current key."""

    key_id: str
    use: str
    until: datetime | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {self.until:%Y-%m-%d %H:%M} UTC"
        return f"the key {self.key_id!r} is needed{until}: {self.use}"


async def old_key_uses(store: Store, vault: Vault, services: Sequence[Service]) -> list[KeyUse]:
    """Everything in the register for which keys other than the current one are still needed."""
    old = vault.key_ids[1:]
    if not old:
        return []
    register = key_register(services)
    uses = await _processes(store, old)
    for cls, fields in register.sealed.items():
        uses += _counted(await count_by_key(cls, fields, store), old, f"sealed in {_name(cls)}")
    secrets = vault.secrets(AUDIT_KEY)
    for cls in documents_of(services):
        if issubclass(cls, AuditHeadFields):
            uses += _counted(await count_heads(store, cls, secrets), old, f"signed in {_name(cls)}")
    for key_id in old:
        count, until = await channels_of_key(store, key_id)
        uses += [KeyUse(key_id, f"tokens of {count} open push channels", until)] if count else []
    return uses + await _lasting(store, vault, register.derived)


async def _processes(store: Store, old: Sequence[str]) -> list[KeyUse]:
    living = [one for one in await living_processes(store) if one.key_id in old]
    return [KeyUse(one.key_id, f"the process {describe(one)} seals and signs with it") for one in living]


def _counted(counts: Counter[str], old: Sequence[str], what: str) -> list[KeyUse]:
    return [KeyUse(key_id, f"{counts[key_id]:,} {what}") for key_id in old if counts[key_id]]


def _name(cls: type[Document]) -> str:
    return "/".join(schema_of(cls).path.names)


async def _lasting(store: Store, vault: Vault, derived: Sequence[DerivedKey]) -> list[KeyUse]:
    """What can't be signed again, counted from the first rotation to the current key."""
    now = store.clock.now()
    rotations = [one.doc async for one in store.privileged().scan(Query(Rotation).order_by("-started_at"))]
    began_at = min((one.started_at for one in rotations if one.key_id == vault.current_key), default=now)
    ends = [(one.signs, began_at + timedelta(seconds=one.lasts_s)) for one in derived]
    return [
        KeyUse(key_id, signs, until) for key_id in vault.key_ids[1:] for signs, until in ends if until > now
    ]
