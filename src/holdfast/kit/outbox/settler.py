"""Settling in batches: whatever finished while the last batch was being kept goes into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from holdfast.errors import HoldfastError, LeaseLostError, RetryLaterError
from holdfast.store import Store, Write

_log: Final = structlog.get_logger("holdfast.outbox")


class Settlement:
    """The writes that settle one delivery; `until` is when its lease ends and trying again is pointless."""

    __slots__ = ("label", "on_kept", "until", "writes")

    def __init__(
        self, writes: Sequence[Write], *, label: str, until: float, on_kept: Callable[[], None] | None = None
    ) -> None:
        self.writes, self.label, self.until, self.on_kept = writes, label, until, on_kept


class Settler:
    """Keeps settlements, many in one go, each whole or not at all by itself."""

    def __init__(self, store: Store, *, batch_max: int = 200, linger_s: float = 0.0) -> None:
        self._store = store
        self._batch_max, self._linger_s = batch_max, linger_s
        self._waiting: list[Settlement] = []
        self._arrived = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self.lost = self.kept = 0
        self.unsettled = 0

    def add(self, settlement: Settlement) -> None:
        self._waiting.append(settlement)
        self.unsettled += 1
        self._settled.clear()
        self._arrived.set()

    async def settled(self) -> None:
        """Return once nothing waits to be kept."""
        await self._settled.wait()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            if self._linger_s and len(self._waiting) < self._batch_max:
                await asyncio.sleep(self._linger_s)
            batch = self._waiting[: self._batch_max]
            del self._waiting[: self._batch_max]
            again, after_s = await self._keep(batch)
            self._waiting[:0] = again
            self.unsettled -= len(batch) - len(again)
            if not self._waiting:
                self._arrived.clear()
                self._settled.set()
            elif again:
                await self._store.clock.sleep(after_s)

    async def _keep(self, batch: list[Settlement]) -> tuple[list[Settlement], float]:
        """Those to be tried again, and after how long."""
        try:
            outcomes = await self._store.settle([one.writes for one in batch])
        except RetryLaterError as fault:
            return self._in_time(batch), fault.after_s
        again: list[Settlement] = []
        after_s = 0.0
        for one, outcome in zip(batch, outcomes, strict=True):
            if not isinstance(outcome, HoldfastError):
                self.kept += 1
                if one.on_kept is not None:
                    one.on_kept()
            elif isinstance(outcome, RetryLaterError):
                again.append(one)
                after_s = max(after_s, outcome.after_s)
            else:
                self._refused(one, outcome)
        return self._in_time(again), after_s

    def _refused(self, one: Settlement, fault: HoldfastError) -> None:
        self.lost += 1
        if not isinstance(fault, LeaseLostError):
            _log.warning("settling was refused", delivery=one.label, code=fault.code, error=fault.message)

    def _in_time(self, batch: list[Settlement]) -> list[Settlement]:
        now = self._store.clock.monotonic()
        return [one for one in batch if one.until > now]
