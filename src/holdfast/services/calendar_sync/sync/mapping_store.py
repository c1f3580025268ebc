"""The map that is in force: kept in the store, reloaded from its source, read by every process."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from holdfast.errors import ConfigError, HoldfastError, InvalidError
from holdfast.services.calendar_sync.domain.mappings import Entries, digest, kept, parse
from holdfast.services.calendar_sync.domain.sync_state import request_sync
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

    Example: `secondaries = (await directory.current())["alice@hoge.jp"]`
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
        """The map as this process knows it: secondaries by primary."""
        return self._entries

    async def current(self) -> Entries:
        """The map in force, also when another process has reloaded it."""
        stored = await self.last_reload()
        if stored.digest != (self._digest or ""):
            async with self._turn:
                await self._read(stored.digest)
        return self._entries

    async def last_reload(self) -> MappingReload:
        found = await self._store.get(MappingReload, THE_RELOAD)
        return found.doc if found else MappingReload(id=THE_RELOAD)

    async def _read(self, known_as: str) -> None:
        entries: dict[str, tuple[str, ...]] = {}
        async for found in self._store.scan(Query(UserMapping).limit(PAGE)):
            entries[found.doc.primary_email] = tuple(found.doc.secondary_emails)
        self._entries, self._digest = entries, known_as

    async def reload(self) -> ReloadResult:
        """Read the source and put its map in force; raises, and keeps the last good one, when it can't."""
        if self._source is None:
            raise ConfigError("no mappings: set [services.calendar_sync] mappings")
        async with self._turn:
            stored = await self.last_reload()
            await self._read(stored.digest)
            try:
                return await self._reload(self._source)
            except HoldfastError as fault:
                log.warning("mappings not reloaded", error=fault.message)
                await self._note_failure(fault)
                raise

    async def _reload(self, source: MappingSource) -> ReloadResult:
        parsed = parse(await source.rows())
        before, after = self._entries, kept(parsed, self._entries)
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
        changed = [one for one in after if after[one] != before.get(one)]
        removed = [one for one in before if one not in after]
        for start in range(0, len(changed) + len(removed), AT_ONCE):
            some = [*changed, *removed][start : start + AT_ONCE]
            await asyncio.gather(*(self._change(one, after.get(one)) for one in some))
        # Last: whoever sees the new digest finds the whole new map.
        await self._note_success(digest(after), len(after), bad)
        self._entries, self._digest = after, digest(after)
        added = sum(one not in before for one in changed)
        return ReloadResult(
            mappings=len(after), added=added, changed=len(changed) - added, removed=len(removed), bad_rows=bad
        )

    async def _change(self, primary: str, secondaries: tuple[str, ...] | None) -> None:
        """One primary's mapping, and the look at its calendar that the change asks for, in one commit."""

        async def act(tx: Transaction) -> None:
            now = self._clock.now()
            mapping, state = await tx.get(UserMapping, primary), await tx.get(CalendarState, primary)
            if secondaries is None:
                tx.write(*([delete(UserMapping, primary)] if mapping else []))
                tx.write(*([delete(CalendarState, primary)] if state else []))
                return
            tx.write(put(_document(primary, secondaries, now)))
            if state is None:
                tx.write(put(CalendarState(calendar_id=primary, asked=1, due_at=now)))
            elif mapping is None or tuple(mapping.doc.secondary_emails) != secondaries:
                tx.write(put(request_sync(state.doc, now, full=True)))

        await self._store.transact(act)

    async def _note_success(self, digest: str, count: int, bad: tuple[BadMappingRow, ...]) -> None:
        now = self._clock.now()
        done = MappingReload(
            id=THE_RELOAD, digest=digest, mappings=count, bad_rows=list(bad[:BAD_ROWS_MAX]), loaded_at=now,
            tried_at=now,
        )  # fmt: skip
        await self._store.commit(put(done))

    async def _note_failure(self, fault: HoldfastError) -> None:
        async def act(tx: Transaction) -> None:
            found = await tx.get(MappingReload, THE_RELOAD)
            last = found.doc if found else MappingReload(id=THE_RELOAD)
            tx.write(put(replace(
                last, failures=last.failures + 1, error=fault.message, tried_at=self._clock.now()
            )))  # fmt: skip

        await self._store.transact(act)


def _document(primary: str, secondaries: tuple[str, ...], now: datetime) -> UserMapping:
    return UserMapping(primary_email=primary, secondary_emails=list(secondaries), updated_at=now)
