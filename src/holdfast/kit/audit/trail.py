"""The audit trail over a store: append with the act itself, verify, export."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol, TypeVar
from weakref import WeakSet

import msgspec
import structlog

from holdfast.errors import ConfigError
from holdfast.kit.audit.chain import ChainFault, check_link, is_authentic, is_unsigned, link, sign
from holdfast.kit.audit.models import (
    AUDIT_MODELS,
    AuditCheckpoint,
    AuditEntry,
    AuditFields,
    AuditHeadFields,
    AuditModels,
)
from holdfast.kit.vault import DerivedKey
from holdfast.outside_text import clean_value
from holdfast.store import Query, Store, Transaction, create, put

T = TypeVar("T")
PAGE: Final = 1_000
ATTEMPTS: Final = 100
KEY_BYTES_MIN: Final = 32
TEXT_CHARACTERS_MAX: Final = 100_000
AUDIT_KEY: Final = DerivedKey(purpose="audit", signs="the ends of audit trails")
UNSIGNED: Final = (
    "no key has signed the chain yet; if it is of an earlier release, run `holdfast keys rotate` to sign it"
)
log = structlog.get_logger("holdfast.audit")
_INDEXED: Final = ("action", "actor", "subject")


class ChainVerification(msgspec.Struct, frozen=True):
    """Result of a verification: the number of valid events, and the first fault if any."""

    events: int
    fault: ChainFault | None

    @property
    def intact(self) -> bool:
        return self.fault is None


class Audit:
    """One tenant's trail. With `keys` its head is authenticated, by the first; any of them verifies.

    Then somebody who can write to the database, but has no key, can't rewrite it unnoticed. An earlier state
    of it, put back whole, is found by a checkpoint (`holdfast.kit.audit.checkpoints`).

    Example:
        async def cancel(tx):
            tx.write(patch(Run, run_id, changes={"status": "cancelled"}))
            await audit.add(tx, AuditEntry(action="run.cancelled", actor=user, subject=run_id))
        await audit.transact(cancel)
    """

    def __init__(
        self, store: Store, tenant_id: str, *, keys: Sequence[bytes] = (), models: AuditModels = AUDIT_MODELS
    ) -> None:
        if any(len(key) < KEY_BYTES_MIN for key in keys):
            raise ConfigError(f"the audit key needs at least {KEY_BYTES_MIN} bytes")
        self._all, self._store = store, store.tenant(tenant_id)
        self._tenant_id = tenant_id
        self._keys, self._models = keys, models
        self._lock = asyncio.Lock()
        self._queued: WeakSet[Transaction] = WeakSet()

    async def add(self, tx: Transaction, *entries: AuditEntry, sign_first: bool = False) -> list[AuditFields]:
        """Append inside the caller's transaction; without `sign_first` an unsigned chain stays so."""
        stored = await tx.get(self._models.head, self._tenant_id)
        head = self._continued(stored.doc if stored else self._first())
        signed = sign_first or not is_unsigned(head)
        at = self._store.clock.now()
        events: list[AuditFields] = []
        for entry in map(_cleaned, entries):
            event, head = link(head, entry, models=self._models, at=at)
            events.append(event)
        tx.write(*(create(event) for event in events), put(self._signed(head) if signed else head))
        return events

    def _continued(self, head: AuditHeadFields) -> AuditHeadFields:
        """The head to append to; remembers one that no key authenticated, so that no later MAC hides it."""
        if not self._keys or head.forged_sequence or is_unsigned(head) or is_authentic(head, self._keys):
            return head
        log.error("audit head is not authentic", tenant=self._tenant_id, sequence=head.sequence)
        return msgspec.structs.replace(head, forged_sequence=head.sequence)

    def _signed(self, head: AuditHeadFields) -> AuditHeadFields:
        return sign(head, self._keys[0]) if self._keys else msgspec.structs.replace(head, mac="")

    async def transact(
        self, act: Callable[[Transaction], Awaitable[T]], *, attempts: int = ATTEMPTS, across: bool = False
    ) -> T:
        """`store.transact` for acts that append here; with `across` it reaches all tenants.

        Serialized in this process, so that they do not conflict on the chain's head; conflicts with other
        processes are retried.
        """
        store = self._all.privileged() if across else self._store

        async def queued(tx: Transaction) -> T:
            self._queued.add(tx)
            return await act(tx)

        async with self._lock:
            return await store.transact(queued, attempts=attempts)

    async def begin(self, stack: AsyncExitStack, *, across: bool = False) -> Transaction:
        """A transaction for an act that appends here, which the caller commits before the stack closes."""
        await stack.enter_async_context(self._lock)
        tx = Transaction(self._all.privileged() if across else self._store)
        self._queued.add(tx)
        return tx

    async def queue(self, tx: Transaction) -> None:
        """Let a transaction that was begun elsewhere wait for its turn in this process, and hold it."""
        if tx not in self._queued:
            await self._lock.acquire()
            self._queued.add(tx)
            tx.on_end(lambda _: self._lock.release())

    async def append(self, *entries: AuditEntry) -> list[AuditFields]:
        """Append in a commit of its own."""
        return await self.transact(lambda tx: self.add(tx, *entries))

    async def verify(self, checkpoint: AuditCheckpoint | None = None) -> ChainVerification:
        """Walk the whole chain; finds any change, gap, insertion, reordering or truncation."""
        before = await self._head()
        last = self._first()
        seen: dict[str, Counter[str]] = {field: Counter() for field in _INDEXED}
        async for snapshot in self._store.scan(Query(self._models.event).order_by("sequence").limit(PAGE)):
            event = snapshot.doc
            fault = check_link(last, event, stored_id=snapshot.key)
            if fault is not None:
                return ChainVerification(last.sequence, fault)
            last = self._models.head(tenant_id=self._tenant_id, sequence=event.sequence, hash=event.hash)
            if last.sequence == before.sequence and last.hash != before.hash:
                return ChainVerification(
                    last.sequence, ChainFault("changed", last.sequence, snapshot.key, "differs from its head")
                )
            for field in _INDEXED:
                seen[field][getattr(event, field)] += 1
        fault = await self._check_end(before, last) or await self._check_indexes(seen, last)
        return ChainVerification(last.sequence, fault or await self.check(checkpoint))

    async def check(self, checkpoint: AuditCheckpoint | None = None) -> ChainFault | None:
        """Check the head, and that the chain continues a checkpoint: cheap however long the chain is."""
        head = await self._head()
        if self._keys and checkpoint is None and is_unsigned(head):
            return ChainFault("unsigned", head.sequence, "", UNSIGNED)
        if self._keys and not is_authentic(head, self._keys):
            return ChainFault("forged", head.sequence, "", "no key authenticates the head of the chain")
        if head.forged_sequence:
            said = f"no key authenticated the head when event {head.forged_sequence + 1} was appended"
            return ChainFault("forged", head.forged_sequence, "", said)
        return None if checkpoint is None else await self._check_continues(checkpoint, head)

    async def _check_continues(self, checkpoint: AuditCheckpoint, head: AuditHeadFields) -> ChainFault | None:
        sequence, at = checkpoint.sequence, f"{checkpoint.at:%Y-%m-%d %H:%M} UTC"
        if head.sequence < sequence:
            said = f"events {head.sequence + 1} to {sequence} existed at {at} and are missing"
            return ChainFault("cut off", head.sequence + 1, "", said)
        found = await self._store.query(Query(self._models.event).where("sequence", "==", sequence).limit(1))
        if not found.docs or found.docs[0].hash != checkpoint.hash:
            said = f"event {sequence} is not the one that existed at {at}"
            return ChainFault("changed", sequence, "", said)
        return None

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


def _cleaned(entry: AuditEntry) -> AuditEntry:
    """The entry as it is stored for good: without control characters, and without secrets in URLs."""
    texts = {**msgspec.structs.asdict(entry), "details": msgspec.to_builtins(entry.details)}
    return AuditEntry(**clean_value(texts, characters_max=TEXT_CHARACTERS_MAX))


class AuditFactory(Protocol):
    """The one `Audit` of a tenant's trail in this process, so that its appends queue in order."""

    def __call__(self, tenant_id: str, *, models: AuditModels = AUDIT_MODELS) -> Audit: ...
