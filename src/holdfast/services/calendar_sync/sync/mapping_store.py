"""The map in force: stored, reloaded from its source, read by every process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from holdfast.errors import ConfigError, HoldfastError, InvalidError
from holdfast.services.calendar_sync.domain.mappings import Entries, digest, merge_mappings, parse
from holdfast.services.calendar_sync.domain.sync_state import follow_mapping
from holdfast.services.calendar_sync.models import BadMappingRow, CalendarState, MappingReload, UserMapping
from holdfast.services.calendar_sync.sync.sources import MappingSource
from holdfast.store import Query, Store, Transaction, delete, put

log = structlog.get_logger("holdfast.calendar_sync")

THE_RELOAD: Final = "last"
PAGE: Final = 2_000
AT_ONCE: Final = 200
BAD_ROWS_MAX: Final = 100


class ReloadResult(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a reload changed, and the rows it could not use."""

    mappings: int
    added: int
    changed: int
    removed: int
    bad_rows: tuple[BadMappingRow, ...]


class MappingStore:
    """Primaries and their secondaries.

    A reload that fails leaves the map as it was, in memory and in the store, so that a process which
    starts while the source is away works with the last good one.

    Example: `secondaries = (await mappings.current())["alice@hoge.jp"]`
    """

    def __init__(self, store: Store, source: MappingSource | None) -> None:
        self._store, self._clock, self._source = store, store.clock, source
        self._entries: Entries = {}
        self._digest: str | None = None
        self._turn = asyncio.Lock()

    @property
    def loaded(self) -> bool:
        """Whether there is a map: read from the source once, by this process or an earlier one."""
        return bool(self._digest)

    @property
    def entries(self) -> Entries:
        """The map as this process last read it: secondaries by primary."""
        return self._entries

    @property
    def digest(self) -> str:
        """The digest of `entries`."""
        return self._digest or ""

    async def current(self) -> Entries:
        """Return the map in force, also when another process has reloaded it."""
        stored = await self.last_reload()
        if stored.digest != (self._digest or ""):
            async with self._turn:
                await self._read(stored.digest)
        return self._entries

    async def last_reload(self) -> MappingReload:
        found = await self._store.get(MappingReload, THE_RELOAD)
        return found.doc if found else MappingReload(id=THE_RELOAD)

    async def _read(self, digest_read: str) -> None:
        entries: dict[str, tuple[str, ...]] = {}
        async for found in self._store.scan(Query(UserMapping).limit(PAGE)):
            entries[found.doc.primary_email] = tuple(found.doc.secondary_emails)
        self._entries, self._digest = entries, digest_read

    async def reload(self) -> ReloadResult:
        """Read the source and put its map in force; raises, and keeps the last good one, when it can't."""
        if self._source is None:
            raise ConfigError("no mappings: set [service.calendar_sync] mappings")
        async with self._turn:
            stored = await self.last_reload()
            await self._read(stored.digest)
            try:
                return await self._reload(self._source)
            except HoldfastError as fault:
                log.warning("mappings not reloaded", error=fault.message)
                await self._record_failure(fault)
                raise

    async def _reload(self, source: MappingSource) -> ReloadResult:
        parsed = parse(await source.rows())
        before, after = self._entries, merge_mappings(parsed, self._entries)
        if before and not after and not before.keys() <= parsed.inactive:
            raise InvalidError(
                "the source has no mapping left, which would stop every channel; "
                "to end them on purpose, give each row the status inactive"
                if not parsed.bad
                else "the source has no row that can be used"
            )
        return await self._put_in_force(before, after, bad=parsed.bad)

    async def _put_in_force(
        self, before: Entries, after: Entries, *, bad: tuple[BadMappingRow, ...]
    ) -> ReloadResult:
        """Write the map, then its digest, then request the syncs that it calls for.

        In this order no sync works by the old map after one by the new map was requested, and a crash in
        between leaves a digest that differs or a reload marked as unapplied.
        """
        changed = [one for one in after if after[one] != before.get(one)]
        removed = [one for one in before if one not in after]
        await self._each([*changed, *removed], lambda one: self._write(one, after.get(one)))
        stored, new = await self.last_reload(), digest(after)
        done = MappingReload(
            id=THE_RELOAD, digest=new, mappings=len(after), bad_rows=list(bad[:BAD_ROWS_MAX]),
            loaded_at=self._clock.now(), tried_at=self._clock.now(),
            unapplied=stored.unapplied or stored.digest != new,
        )  # fmt: skip
        await self._store.commit(put(done))
        self._entries, self._digest = after, new
        if done.unapplied:
            await self._request_syncs()
            await self._store.commit(put(replace(done, unapplied=False)))
        added = sum(one not in before for one in changed)
        return ReloadResult(
            mappings=len(after), added=added, changed=len(changed) - added, removed=len(removed), bad_rows=bad
        )

    async def _each(self, primaries: Sequence[str], act: Callable[[str], Awaitable[None]]) -> None:
        for start in range(0, len(primaries), AT_ONCE):
            await asyncio.gather(*(act(one) for one in primaries[start : start + AT_ONCE]))

    async def _write(self, primary: str, secondaries: tuple[str, ...] | None) -> None:
        if secondaries is None:
            await self._store.commit(delete(UserMapping, primary))
            return
        now = self._clock.now()
        mapping = UserMapping(primary_email=primary, secondary_emails=list(secondaries), updated_at=now)
        await self._store.commit(put(mapping))

    async def _request_syncs(self) -> None:
        """Request a full sync of every calendar whose mapping is not the one it was last synced for."""
        mappings = {one.key: one.doc async for one in self._store.scan(Query(UserMapping).limit(PAGE))}
        states = {one.key: one.doc async for one in self._store.scan(Query(CalendarState).limit(PAGE))}
        now = self._clock.now()
        changed = [
            id
            for id in dict.fromkeys([*mappings, *states])
            if follow_mapping(states.get(id), mappings.get(id), calendar_id=id, now=now) is not None
        ]
        await self._each(changed, self._request_sync)

    async def _request_sync(self, calendar_id: str) -> None:
        async def act(tx: Transaction) -> None:
            mapping, state = await tx.get(UserMapping, calendar_id), await tx.get(CalendarState, calendar_id)
            after = follow_mapping(
                state.doc if state else None, mapping.doc if mapping else None, calendar_id=calendar_id,
                now=self._clock.now(),
            )  # fmt: skip
            if after is not None:
                tx.write(put(after))

        await self._store.transact(act)

    async def _record_failure(self, fault: HoldfastError) -> None:
        async def act(tx: Transaction) -> None:
            found = await tx.get(MappingReload, THE_RELOAD)
            last = found.doc if found else MappingReload(id=THE_RELOAD)
            tx.write(put(replace(
                last, failures=last.failures + 1, error=fault.message, tried_at=self._clock.now()
            )))  # fmt: skip

        await self._store.transact(act)
