"""The audit trail over a store: append with the act itself, verify, export."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from holdfast.errors import ConfigError
from holdfast.kit.audit.chain import ChainFault, check_link, link
from holdfast.kit.audit.models import AuditEntry, AuditEvent, AuditHead
from holdfast.store import Query, Store, Transaction, create, put

T = TypeVar("T")
PAGE: Final = 1_000
ATTEMPTS: Final = 100
KEY_BYTES_MIN: Final = 32
_INDEXED: Final = ("action", "actor", "subject")


class ChainVerification(msgspec.Struct, frozen=True):
    """What a verification found: how many events hold, and the first fault if there is one."""

    events: int
    fault: ChainFault | None

    @property
    def intact(self) -> bool:
        return self.fault is None


class Audit:
    """One tenant's trail. With a key the chain can't be forged even by somebody who rewrites all of it.

    Example:
        async def cancel(tx):
            tx.write(patch(Run, run_id, changes={"status": "cancelled"}))
            await audit.add(tx, Entry(action="run.cancelled", actor=user, subject=run_id))
        await audit.transact(cancel)
    """

    def __init__(self, store: Store, tenant_id: str, *, key: bytes = b"") -> None:
        if key and len(key) < KEY_BYTES_MIN:
            raise ConfigError(f"the audit key needs at least {KEY_BYTES_MIN} bytes")
        self._all, self._store = store, store.tenant(tenant_id)
        self._tenant_id = tenant_id
        self._key = key
        self._turn = asyncio.Lock()

    async def add(self, tx: Transaction, *entries: AuditEntry) -> list[AuditEvent]:
        """Append inside the caller's transaction; call it once a transaction, with all entries."""
        found = await tx.get(AuditHead, self._tenant_id)
        head = found.doc if found else AuditHead(tenant_id=self._tenant_id)
        at = self._store.clock.now()
        events: list[AuditEvent] = []
        for entry in entries:
            event, head = link(head, entry, at=at, key=self._key)
            events.append(event)
        tx.write(*(create(event) for event in events), put(head))
        return events

    async def transact(
        self, act: Callable[[Transaction], Awaitable[T]], *, attempts: int = ATTEMPTS, across: bool = False
    ) -> T:
        """`store.transact` for acts that append here, one at a time in this process, so that they don't
        conflict on the chain's head; conflicts with other processes are retried. With `across`, the act
        reaches every tenant's documents."""
        store = self._all.privileged() if across else self._store
        async with self._turn:
            return await store.transact(act, attempts=attempts)

    async def append(self, *entries: AuditEntry) -> list[AuditEvent]:
        """Append by itself, where nothing else is written with it."""
        return await self.transact(lambda tx: self.add(tx, *entries))

    async def verify(self) -> ChainVerification:
        """Walk the whole chain; finds any change, gap, insertion, reorder or cut-off tail."""
        before = await self._head()
        last = AuditHead(tenant_id=self._tenant_id)
        seen: dict[str, Counter[str]] = {field: Counter() for field in _INDEXED}
        async for snapshot in self._store.scan(Query(AuditEvent).order_by("sequence").limit(PAGE)):
            event = snapshot.doc
            fault = check_link(last, event, stored_id=snapshot.key, key=self._key)
            if fault is not None:
                return ChainVerification(last.sequence, fault)
            last = AuditHead(tenant_id=self._tenant_id, sequence=event.sequence, hash=event.hash)
            if last.sequence == before.sequence and last.hash != before.hash:
                return ChainVerification(
                    last.sequence,
                    ChainFault("changed", last.sequence, snapshot.key, "not what its head says"),
                )
            for field in _INDEXED:
                seen[field][getattr(event, field)] += 1
        return ChainVerification(
            last.sequence, await self._judge_end(before, last) or await self._judge_filing(seen, last)
        )

    async def _head(self) -> AuditHead:
        found = await self._store.get(AuditHead, self._tenant_id)
        return found.doc if found else AuditHead(tenant_id=self._tenant_id)

    async def _judge_end(self, before: AuditHead, last: AuditHead) -> ChainFault | None:
        """The chain must reach the head read before the walk and not pass the one read after it:
        what others append meanwhile lies between the two."""
        end = last.sequence
        if before.sequence > end:
            return ChainFault("cut off", end + 1, "", f"events {end + 1} to {before.sequence} are gone")
        after = await self._head()
        if after.sequence < end:
            return ChainFault(
                "inserted", after.sequence + 1, "", f"events after {after.sequence} were never appended"
            )
        return None

    async def _judge_filing(self, seen: dict[str, Counter[str]], last: AuditHead) -> ChainFault | None:
        """An index must answer with the events that really say so."""
        for field, counted in seen.items():
            for value, expected in counted.items():
                query = Query(AuditEvent).where(field, "==", value).where("sequence", "<=", last.sequence)
                if await self._store.count(query.order_by("-sequence")) != expected:
                    return await self._misfiled(field, value)
        return None

    async def _misfiled(self, field: str, value: str) -> ChainFault:
        query = Query(AuditEvent).where(field, "==", value).order_by("-sequence").limit(PAGE)
        async for snapshot in self._store.scan(query):
            if getattr(snapshot.doc, field) != value:
                return ChainFault(
                    "misfiled", snapshot.doc.sequence, snapshot.key, f"filed under {field} {value!r}"
                )
        return ChainFault("misfiled", 0, "", f"an event with {field} {value!r} is not found by it")

    async def export(self) -> AsyncIterator[bytes]:
        """The chain as JSON lines, oldest first."""
        async for snapshot in self._store.scan(Query(AuditEvent).order_by("sequence").limit(PAGE)):
            yield msgspec.json.encode(snapshot.doc) + b"\n"
