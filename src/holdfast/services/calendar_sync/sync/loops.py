"""Background loops: due calendars are synced, and the mappings are read when a process starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from holdfast.backoff import BackOff
from holdfast.errors import HoldfastError
from holdfast.kit.worker_loop import WorkerLoop, wait_for_wake
from holdfast.services.calendar_sync.models import CalendarState
from holdfast.services.calendar_sync.sync.event_sync import EventSync
from holdfast.store import Snapshot, Store

log = structlog.get_logger("holdfast.calendar_sync")

POLL_S: Final = 30.0
RELOAD_BACK_OFF: Final = BackOff(first_s=2.0, wait_s_max=60.0)

OnSuccess = Callable[[CalendarState], Awaitable[None]]


class Syncs(WorkerLoop[CalendarState]):
    """Claims calendars that are due and syncs them, so many at a time; each is one process's at a time."""

    def __init__(
        self, store: Store, event_sync: EventSync, *, concurrency: int, lease_s: float, on_success: OnSuccess
    ) -> None:
        super().__init__(store, CalendarState, concurrency=concurrency, lease_s=lease_s, poll_s=POLL_S)
        self._event_sync, self._on_success = event_sync, on_success

    async def turn(self) -> int:
        """Sync everything that is due now, and what comes due by that; return how many syncs there were."""
        return await self.work_off()

    async def _act(self, claimed: Snapshot[CalendarState], until_s: float) -> None:
        if await self._event_sync.sync(claimed):
            await self._on_success(claimed.doc)


class InitialReload:
    """Reads the mappings when a process starts; from then on the job does."""

    def __init__(self, store: Store, refresh: Callable[[], Awaitable[object]]) -> None:
        self._clock, self._refresh = store.clock, refresh
        self.under_way = 0

    async def run(self, stop: asyncio.Event) -> None:
        failures = 0
        while not stop.is_set() and not await self._try():
            failures += 1
            await wait_for_wake(self._clock, RELOAD_BACK_OFF.wait_s(failures), stop=stop)
        await stop.wait()

    async def _try(self) -> bool:
        self.under_way = 1
        try:
            await self._refresh()
        except HoldfastError as fault:
            log.warning("mappings not read at the start", error=fault.message)
            return False
        finally:
            self.under_way = 0
        return True
