"""Runs background loops: a failed one is restarted with back-off, and its error is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
import structlog

from holdfast.backoff import BackOff
from holdfast.clock import Clock
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.service import Health, Loop

log = structlog.get_logger("holdfast.worker")

RESTART: Final = BackOff(first_s=0.5, wait_s_max=30.0)
STUCK_S: Final = 120.0


class LoopStatus(msgspec.Struct, frozen=True):
    """State of one loop."""

    name: str
    running: bool
    restarts: int
    started_at: datetime | None
    last_turn_at: datetime | None
    last_error: str


class _SupervisedLoop:
    def __init__(self, name: str, loop: Loop) -> None:
        self.name, self.loop = name, loop
        self.restarts = 0
        self.running = False
        self.started_at: datetime | None = None
        self.last_error = ""

    @property
    def reports_turns(self) -> bool:
        return hasattr(self.loop, "last_turn_at")

    @property
    def last_turn_at(self) -> datetime | None:
        at: datetime | None = getattr(self.loop, "last_turn_at", None)
        return at


class Supervisor:
    """Runs loops until `stop` is set.

    Example: `await Supervisor({"inbox": inbox_worker}, clock=clock).run(stop)`
    """

    def __init__(self, loops: Mapping[str, Loop], *, clock: Clock, stop_s: float = 4.0) -> None:
        self._loops = [_SupervisedLoop(name, loop) for name, loop in loops.items()]
        self._clock, self._stop_s = clock, stop_s

    async def run(self, stop: asyncio.Event) -> None:
        """Run all loops until `stop` is set; a loop that does not stop in time is cancelled."""
        tasks = [asyncio.create_task(self._run_loop(one, stop), name=one.name) for one in self._loops]
        try:
            await stop.wait()
        finally:
            _, late = await asyncio.wait(tasks, timeout=self._stop_s) if tasks else (set(), set())
            for task in late:
                log.warning("loop did not stop in time", loop=task.get_name())
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def status(self) -> list[LoopStatus]:
        return [
            LoopStatus(w.name, w.running, w.restarts, w.started_at, w.last_turn_at, w.last_error)
            for w in self._loops
        ]

    def health(self) -> Health:
        """Degraded while a loop is down or has not run for long."""
        reasons = []
        now = self._clock.now()
        for supervised, one in zip(self._loops, self.status(), strict=True):
            # A loop that does not report its turns can't be distinguished from a stuck one.
            last_seen = (one.last_turn_at or one.started_at) if supervised.reports_turns else None
            if not one.running:
                reasons.append(f"{one.name} is not running: {one.last_error or 'not started'}")
            elif last_seen is not None and (now - last_seen).total_seconds() > STUCK_S:
                reasons.append(f"{one.name} has not run for {(now - last_seen).total_seconds():.0f} s")
        return Health("degraded" if reasons else "ok", tuple(reasons))

    async def _run_loop(self, one: _SupervisedLoop, stop: asyncio.Event) -> None:
        while not stop.is_set():
            one.started_at, one.running = self._clock.now(), True
            try:
                await one.loop.run(stop)
                return
            except Exception as fault:
                one.last_error = repr(fault)
                log.exception("loop failed; restarting", loop=one.name)
            finally:
                one.running = False
            one.restarts += 1
            await wait_for_wake(self._clock, RESTART.wait_s(one.restarts), stop=stop)
