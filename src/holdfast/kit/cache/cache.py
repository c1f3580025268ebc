"""Getting, changing and clearing cached values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from holdfast.clock import from_us
from holdfast.errors import LeaseLostError
from holdfast.ids import ulid
from holdfast.kit import NO_TENANT
from holdfast.kit.cache.models import CacheDocument, CacheFields, CacheGeneration
from holdfast.kit.leases import Lease, Leases
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.model import schema_of
from holdfast.store import Store, Transaction, delete, put

T = TypeVar("T")
ATTEMPTS: Final = 20
LOADS_MAX: Final = 3
KEYS_MAX: Final = 10_000
# How long to wait for another process's load before its lease is looked at again; its commit wakes earlier.
WAIT_S: Final = 0.5


class Loaded(msgspec.Struct, Generic[T], frozen=True):
    """A value and the time of its source that it is from; the time it was asked for where none is given.

    `updates` change other cached values, by key, in the commit that stores this one.
    """

    value: T
    at: datetime | None = None
    updates: Mapping[str, Callable[[T], T]] = {}


class Cached(msgspec.Struct, Generic[T], frozen=True):
    """A value, the time it is from, and where it was found."""

    value: T
    cached_at: datetime
    level: Literal["memory", "store", "source"]
    stale: bool = False


class CacheStats(msgspec.Struct, kw_only=True):
    """Answers by where the value was found, those of them that were stale, and loads from the source."""

    memory: int = 0
    store: int = 0
    source: int = 0
    stale: int = 0
    loads: int = 0


_Kept = Literal["kept", "changed", "cleared"]


class _Entry(msgspec.Struct, Generic[T], frozen=True):
    value: T
    cached_at_ms: int
    revision: int
    validated_s: float


class Cache(Generic[T]):
    """Values by key, loaded from a source that is slow or expensive to ask.

    `ttl_s` gives a key's time to live; for `stale_s` longer a value is served while it is loaded again. What
    another process changes or clears is seen here within `memory_s`. A load that takes longer than `lease_s`
    may be made by a second process too.

    Example:
        cache = Cache(store, "stories", load, ttl_s=lambda span: TTL_S[span], stale_s=60)
        stories = (await cache.get("Day")).value
    """

    def __init__(
        self,
        store: Store,
        name: str,
        load: Callable[[str], Awaitable[Loaded[T]]],
        *,
        ttl_s: Callable[[str], float],
        stale_s: float = 0.0,
        memory_s: float = 60.0,
        lease_s: float = 30.0,
        model: type[CacheFields] = CacheDocument,
    ) -> None:
        self._tenant_id = store.tenant_id or NO_TENANT
        self._store, self._clock = store.tenant(self._tenant_id), store.clock
        self.name, self._load, self._model = name, load, model
        self._owned = {"tenant_id": self._tenant_id} if schema_of(model).tenant else {}
        self._ttl_s, self._stale_s, self._memory_s, self._lease_s = ttl_s, stale_s, memory_s, lease_s
        self._leases, self._owner = Leases(self._store), ulid()
        self._memory: dict[str, _Entry[T]] = {}
        self._reads: dict[str, asyncio.Task[Cached[T]]] = {}
        self._refreshes: dict[str, asyncio.Task[Cached[T]]] = {}
        self._epoch = 0
        self.stats = CacheStats()

    async def get(self, key: str) -> Cached[T]:
        """Return the value from memory, the store or its source, whichever has it first."""
        entry = self._memory.get(key)
        if entry is not None and self._clock.monotonic() - entry.validated_s < self._memory_s:
            age = self._age(key, entry.cached_at_ms)
            if age != "expired":
                return self._found(key, entry, "memory", stale=age == "stale")
        found = await self._join(self._reads, key, self._read)
        self._count(found)
        return found

    async def update(self, key: str, change: Callable[[T], T]) -> bool:
        """Change a cached value, keeping its time; False where none is cached or it stays as it is."""

        epoch = self._epoch
        doc = await self._store.transact(lambda tx: self._change(tx, key, change), attempts=ATTEMPTS)
        if doc is not None:
            self._remember(key, doc, epoch)
        return doc is not None

    async def _change(self, tx: Transaction, key: str, change: Callable[[T], T]) -> CacheFields | None:
        stored = await tx.get(self._model, self._id(key))
        if stored is None or (value := change(stored.doc.value)) == stored.doc.value:
            return None
        doc = msgspec.structs.replace(stored.doc, value=value, revision=stored.doc.revision + 1)
        tx.write(put(doc))
        return doc

    async def clear(self, *keys: str, transaction: Transaction | None = None) -> None:
        """Clear these values on both levels; a load that began before can't bring one back.

        In the caller's transaction, if given: call `forget` once it is committed.
        """
        if transaction is not None:
            return await self._clear(transaction, keys)
        await self._store.transact(lambda tx: self._clear(tx, keys), attempts=ATTEMPTS)
        self.forget()

    async def _clear(self, tx: Transaction, keys: Sequence[str]) -> None:
        generation = await tx.get(CacheGeneration, self._generation_id)
        number = 1 if generation is None else generation.doc.number + 1
        tx.write(put(CacheGeneration(id=self._generation_id, tenant_id=self._tenant_id, number=number)))
        for key in keys:
            if await tx.get(self._model, self._id(key)) is not None:
                tx.write(delete(self._model, self._id(key)))

    def forget(self) -> None:
        """Drop what this process has in memory; the next reader asks the store."""
        self._epoch += 1
        # Who asks from here on must not join what began before.
        self._memory.clear()
        self._reads.clear()
        self._refreshes.clear()

    async def _read(self, key: str) -> Cached[T]:
        epoch = self._epoch
        stored = await self._stored(key)
        age = "expired" if stored is None else self._age(key, stored.cached_at_ms)
        if stored is None or age == "expired":
            return await self._join(self._refreshes, key, self._refresh)
        self._remember(key, stored, epoch)
        if age == "stale":
            self._start(self._refreshes, key, self._refresh)
        return self._cached(stored, "store", stale=age == "stale")

    async def _refresh(self, key: str) -> Cached[T]:
        """Load the value, or wait for the process that does."""
        epoch, subscription = self._epoch, self._store.watch(self._model)
        try:
            while True:
                lease = await self._leases.acquire(self._lock(key), ttl_s=self._lease_s, owner=self._owner)
                try:
                    stored = await self._stored(key)
                    if stored is not None and self._age(key, stored.cached_at_ms) == "fresh":
                        self._remember(key, stored, epoch)
                        return self._cached(stored, "store")
                    if lease is not None:
                        return await self._load_under(lease, key, stored, epoch=epoch)
                finally:
                    if lease is not None:
                        await self._leases.release(lease)
                await wait_for_wake(self._clock, WAIT_S, wake=subscription)
        finally:
            subscription.close()

    async def _load_under(
        self, lease: Lease, key: str, stored: CacheFields | None, *, epoch: int
    ) -> Cached[T]:
        """Load and store; loaded again where the value was changed meanwhile, which a load may not undo."""
        for _ in range(LOADS_MAX):
            generation = await self._store.get(CacheGeneration, self._generation_id)
            asked_us = self._clock.now_us()
            self.stats.loads += 1
            loaded = await self._load(key)
            at_ms = (asked_us // 1_000) if loaded.at is None else round(loaded.at.timestamp() * 1_000)
            before = 0 if stored is None else stored.revision
            doc = self._model(
                key=self._id(key), value=loaded.value, cached_at_ms=at_ms,
                revision=max(before, asked_us) + 1, **self._owned,
            )  # fmt: skip
            kept, updated = await self._keep(
                lease, doc, before=before, generation=generation and generation.version,
                updates=loaded.updates,
            )  # fmt: skip
            for other, changed in {key: doc, **updated}.items() if kept == "kept" else ():
                self._remember(other, changed, epoch)
            if kept != "changed":
                return self._cached(doc, "source")
            stored = await self._stored(key)
            if stored is not None and self._age(key, stored.cached_at_ms) == "fresh":
                self._remember(key, stored, epoch)
                return self._cached(stored, "store")
        return self._cached(doc, "source")

    async def _keep(
        self,
        lease: Lease,
        doc: CacheFields,
        *,
        before: int,
        generation: Any,
        updates: Mapping[str, Callable[[T], T]],
    ) -> tuple[_Kept, dict[str, CacheFields]]:
        """Store a loaded value and its updates, unless it was changed or the cache cleared meanwhile."""

        async def act(tx: Transaction) -> tuple[_Kept, dict[str, CacheFields]]:
            now = await tx.get(CacheGeneration, self._generation_id)
            if (now and now.version) != generation:
                return "cleared", {}
            stored = await tx.get(self._model, doc.key)
            if (0 if stored is None else stored.doc.revision) != before:
                return "changed", {}
            tx.write(lease.guard(), put(doc))
            changed = {key: await self._change(tx, key, change) for key, change in updates.items()}
            return "kept", {key: one for key, one in changed.items() if one is not None}

        try:
            return await self._store.transact(act, attempts=ATTEMPTS)
        except LeaseLostError:
            # Another process loads it too, having waited longer than the lease: its value is the newer.
            return "cleared", {}

    # -- one at a time -----------------------------------------------------------------------------

    async def _join(
        self,
        flights: dict[str, asyncio.Task[Cached[T]]],
        key: str,
        begin: Callable[[str], Coroutine[Any, Any, Cached[T]]],
    ) -> Cached[T]:
        return await asyncio.shield(self._start(flights, key, begin))

    def _start(
        self,
        flights: dict[str, asyncio.Task[Cached[T]]],
        key: str,
        begin: Callable[[str], Coroutine[Any, Any, Cached[T]]],
    ) -> asyncio.Task[Cached[T]]:
        task = flights.get(key)
        if task is None:
            task = flights[key] = asyncio.create_task(begin(key))

            def ended(task: asyncio.Task[Cached[T]]) -> None:
                if flights.get(key) is task:
                    del flights[key]
                # Heard here where nobody waits for it, as behind a stale value.
                task.cancelled() or task.exception()

            task.add_done_callback(ended)
        return task

    # -- entries -----------------------------------------------------------------------------------

    async def _stored(self, key: str) -> CacheFields | None:
        stored = await self._store.get(self._model, self._id(key))
        return None if stored is None else stored.doc

    def _remember(self, key: str, doc: CacheFields, epoch: int) -> None:
        known = self._memory.get(key)
        if epoch != self._epoch or (known is not None and known.revision > doc.revision):
            return
        self._memory.pop(key, None)
        # The same object while the value is equal, so that callers can remember what they derived from it.
        value = known.value if known is not None and known.value == doc.value else doc.value
        self._memory[key] = _Entry(value, doc.cached_at_ms, doc.revision, self._clock.monotonic())
        if len(self._memory) > KEYS_MAX:
            del self._memory[next(iter(self._memory))]

    def _age(self, key: str, cached_at_ms: int) -> Literal["fresh", "stale", "expired"]:
        age_s = self._clock.now_us() / 1e6 - cached_at_ms / 1_000
        if age_s < self._ttl_s(key):
            return "fresh"
        return "stale" if age_s < self._ttl_s(key) + self._stale_s else "expired"

    def _found(self, key: str, entry: _Entry[T], level: Literal["memory"], *, stale: bool) -> Cached[T]:
        if stale:
            self._start(self._refreshes, key, self._refresh)
        found = Cached(entry.value, from_us(entry.cached_at_ms * 1_000), level, stale)
        self._count(found)
        return found

    def _cached(
        self, doc: CacheFields, level: Literal["store", "source"], *, stale: bool = False
    ) -> Cached[T]:
        return Cached(doc.value, from_us(doc.cached_at_ms * 1_000), level, stale)

    def _count(self, found: Cached[T]) -> None:
        setattr(self.stats, found.level, getattr(self.stats, found.level) + 1)
        self.stats.stale += found.stale

    def _id(self, key: str) -> str:
        """In a collection of its own the key itself; in the kit's, with the tenant's and the cache's name."""
        if self._model is not CacheDocument:
            return key
        return ":".join(part.replace(":", "::") for part in (self._tenant_id, self.name, key))

    @property
    def _generation_id(self) -> str:
        return ":".join(part.replace(":", "::") for part in (self._tenant_id, self.name))

    def _lock(self, key: str) -> str:
        return f"cache:{self.name}:{key}"
