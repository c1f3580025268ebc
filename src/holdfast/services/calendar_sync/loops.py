"""What goes on by itself: calendars are taken in turn, and the mappings are read when a process starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import structlog

from holdfast.errors import HoldfastError
from holdfast.ids import ulid
from holdfast.kit.worker_loop import wait_first, wait_for_wake
from holdfast.services.calendar_sync.event_sync import EventSync
from holdfast.services.calendar_sync.models import CalendarState
from holdfast.store import Snapshot, Store

log = structlog.get_logger("holdfast.calendar_sync")

POLL_S: Final = 30.0
FIRST_WAIT_S: Final = 2.0
FIRST_WAIT_S_MAX: Final = 60.0

Noticed = Callable[[str], Awaitable[None]]


class Syncs:
    """Claims calendars that are due and syncs them, so many at a time; each is one process's at a time."""

    def __init__(
        self, store: Store, syncing: EventSync, *, concurrency: int, lease_s: float, synced: Noticed
    ) -> None:
        self._store, self._clock, self._syncing = store, store.clock, syncing
        self._concurrency, self._lease_s, self._synced = concurrency, lease_s, synced
        self._owner = ulid()
        self.last_turn_at: datetime | None = None
        self.under_way = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Sync until told to stop; then finish what is under way."""
        subscription = self._store.watch(CalendarState)
        tasks: set[asyncio.Task[None]] = set()
        ended = asyncio.Event()
        try:
            while not stop.is_set():
                ended.clear()
                room = self._concurrency - len(tasks)
                claimed = await self._claim(room) if room else []
                for one in claimed:
                    task = asyncio.create_task(self._work(one))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                    task.add_done_callback(lambda _: ended.set())
                if not room:
                    await wait_first(ended.wait(), stop.wait())
                elif not claimed:
                    await wait_for_wake(self._clock, await self._idle_s(), wake=subscription, stop=stop)
        finally:
            subscription.close()
            await asyncio.gather(*tasks)

    async def turn(self) -> int:
        """Sync everything that is due now, and what comes due by that; says how many syncs there were."""
        done = 0
        while claimed := await self._claim(self._concurrency):
            await asyncio.gather(*(self._work(one) for one in claimed))
            done += len(claimed)
        return done

    async def _claim(self, room: int) -> list[Snapshot[CalendarState]]:
        self.last_turn_at = self._clock.now()
        return await self._store.claim_due(
            CalendarState, limit=room, lease_s=self._lease_s, owner=self._owner
        )

    async def _idle_s(self) -> float:
        due = await self._store.next_due(CalendarState)
        wait = POLL_S if due is None else (due - self._clock.now()).total_seconds()
        return min(max(wait, 0.005), POLL_S)

    async def _work(self, claimed: Snapshot[CalendarState]) -> None:
        self.under_way += 1
        try:
            if await self._syncing.sync(claimed):
                await self._synced(claimed.doc.calendar_id)
        finally:
            self.under_way -= 1


class InitialReload:
    """Reads the mappings when a process starts; from then on the job does."""

    def __init__(self, store: Store, refresh: Callable[[], Awaitable[object]]) -> None:
        self._clock, self._refresh = store.clock, refresh
        self.under_way = 0

    async def run(self, stop: asyncio.Event) -> None:
        wait_s = FIRST_WAIT_S
        while not stop.is_set() and not await self._looked():
            await wait_for_wake(self._clock, wait_s, stop=stop)
            wait_s = min(wait_s * 2, FIRST_WAIT_S_MAX)
        await stop.wait()

    async def _looked(self) -> bool:
        self.under_way = 1
        try:
            await self._refresh()
        except HoldfastError as fault:
            log.warning("mappings not read at the start", error=fault.message)
            return False
        finally:
            self.under_way = 0
        return True
