"""The audit trail over a store: append with the act itself, verify, export."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final, Protocol, TypeVar

import msgspec

from holdfast.errors import ConfigError
from holdfast.kit.audit.chain import ChainFault, check_link, link
from holdfast.kit.audit.models import AUDIT_MODELS, AuditEntry, AuditFields, AuditHeadFields, AuditModels
from holdfast.store import Query, Store, Transaction, create, put

T = TypeVar("T")
PAGE: Final = 1_000
ATTEMPTS: Final = 100
KEY_BYTES_MIN: Final = 32
_INDEXED: Final = ("action", "actor", "subject")


class ChainVerification(msgspec.Struct, frozen=True):
    """Result of a verification: the number of valid events, and the first fault if any."""

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
            await audit.add(tx, AuditEntry(action="run.cancelled", actor=user, subject=run_id))
        await audit.transact(cancel)
    """

    def __init__(
        self, store: Store, tenant_id: str, *, key: bytes = b"", models: AuditModels = AUDIT_MODELS
    ) -> None:
        if key and len(key) < KEY_BYTES_MIN:
            raise ConfigError(f"the audit key needs at least {KEY_BYTES_MIN} bytes")
        self._all, self._store = store, store.tenant(tenant_id)
        self._tenant_id = tenant_id
        self._key, self._models = key, models
        self._lock = asyncio.Lock()

    async def add(self, tx: Transaction, *entries: AuditEntry) -> list[AuditFields]:
        """Append inside the caller's transaction."""
        stored = await tx.get(self._models.head, self._tenant_id)
        head = stored.doc if stored else self._first()
        at = self._store.clock.now()
        events: list[AuditFields] = []
        for entry in entries:
            event, head = link(head, entry, models=self._models, at=at, key=self._key)
            events.append(event)
        tx.write(*(create(event) for event in events), put(head))
        return events

    async def transact(
        self, act: Callable[[Transaction], Awaitable[T]], *, attempts: int = ATTEMPTS, across: bool = False
    ) -> T:
        """`store.transact` for acts that append here; with `across` it reaches all tenants.

        Serialized in this process, so that they do not conflict on the chain's head; conflicts with other
        processes are retried.
        """
        store = self._all.privileged() if across else self._store
        async with self._lock:
            return await store.transact(act, attempts=attempts)

    async def begin(self, stack: AsyncExitStack, *, across: bool = False) -> Transaction:
        """A transaction for an act that appends here, which the caller commits before the stack closes."""
        await stack.enter_async_context(self._lock)
        return Transaction(self._all.privileged() if across else self._store)

    async def queue(self, tx: Transaction) -> None:
        """Let a transaction that was begun elsewhere wait for its turn in this process, until its end."""
        await self._lock.acquire()
        tx.on_end(lambda _: self._lock.release())

    async def append(self, *entries: AuditEntry) -> list[AuditFields]:
        """Append in a commit of its own."""
        return await self.transact(lambda tx: self.add(tx, *entries))

    async def verify(self) -> ChainVerification:
        """Walk the whole chain; finds any change, gap, insertion, reordering or truncation."""
        before = await self._head()
        last = self._first()
        seen: dict[str, Counter[str]] = {field: Counter() for field in _INDEXED}
        async for snapshot in self._store.scan(Query(self._models.event).order_by("sequence").limit(PAGE)):
            event = snapshot.doc
            fault = check_link(last, event, stored_id=snapshot.key, key=self._key)
            if fault is not None:
                return ChainVerification(last.sequence, fault)
            last = self._models.head(tenant_id=self._tenant_id, sequence=event.sequence, hash=event.hash)
            if last.sequence == before.sequence and last.hash != before.hash:
                return ChainVerification(
                    last.sequence, ChainFault("changed", last.sequence, snapshot.key, "differs from its head")
                )
            for field in _INDEXED:
                seen[field][getattr(event, field)] += 1
        return ChainVerification(
            last.sequence, await self._check_end(before, last) or await self._check_indexes(seen, last)
        )

    def _first(self) -> AuditHeadFields:
        return self._models.head(tenant_id=self._tenant_id)

    async def _head(self) -> AuditHeadFields:
        stored = await self._store.get(self._models.head, self._tenant_id)
        return stored.doc if stored else self._first()

    async def _check_end(self, before: AuditHeadFields, last: AuditHeadFields) -> ChainFault | None:
        """The chain must reach the head read before the walk and not pass the one read after it.

        Events that others append meanwhile lie between the two.
        """
        end = last.sequence
        if before.sequence > end:
            return ChainFault("cut off", end + 1, "", f"events {end + 1} to {before.sequence} are missing")
        after = await self._head()
        if after.sequence < end:
            return ChainFault(
                "inserted", after.sequence + 1, "", f"events after {after.sequence} were never appended"
            )
        return None

    async def _check_indexes(self, seen: dict[str, Counter[str]], last: AuditHeadFields) -> ChainFault | None:
        """An index must return exactly the events that have its value."""
        for field, counted in seen.items():
            for value, expected in counted.items():
                query = Query(self._models.event).where(field, "==", value).order_by("-sequence")
                if await self._store.count(query.where("sequence", "<=", last.sequence)) != expected:
                    return await self._misfiled(field, value)
        return None

    async def _misfiled(self, field: str, value: str) -> ChainFault:
        query = Query(self._models.event).where(field, "==", value).order_by("-sequence").limit(PAGE)
        async for snapshot in self._store.scan(query):
            if getattr(snapshot.doc, field) != value:
                return ChainFault(
                    "misfiled", snapshot.doc.sequence, snapshot.key, f"indexed under {field} {value!r}"
                )
        return ChainFault("misfiled", 0, "", f"an event with {field} {value!r} is missing from its index")

    async def export(self) -> AsyncIterator[bytes]:
        """The chain as JSON lines, oldest first."""
        async for snapshot in self._store.scan(Query(self._models.event).order_by("sequence").limit(PAGE)):
            yield msgspec.json.encode(snapshot.doc) + b"\n"


class AuditFactory(Protocol):
    """The one `Audit` of a tenant's trail in this process, so that its appends queue in order."""

    def __call__(self, tenant_id: str, *, models: AuditModels = AUDIT_MODELS) -> Audit: ...
