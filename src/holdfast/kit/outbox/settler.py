"""Settling in batches: what finished while the last batch was committed goes into the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Final

import msgspec
import structlog

from holdfast.errors import HoldfastError, LeaseLostError, RetryLaterError
from holdfast.kit.outbox.models import Delivery
from holdfast.kit.outbox.outcome import fenced_patch
from holdfast.store import Store, Write
from holdfast.store.commit import Outcome

_log: Final = structlog.get_logger("holdfast.outbox")


class Settlement(msgspec.Struct, frozen=True):
    """What settles one delivery, worth trying until its lease ends.

    These `fields` of it as they are now or, where it takes more than a patch, `writes`.
    """

    delivery: Delivery
    until_s: float
    fields: tuple[str, ...] = ()
    writes: Sequence[Write] = ()


class Settler:
    """Commits settlements, many at once, each atomic by itself."""

    def __init__(self, store: Store, *, batch_max: int = 200) -> None:
        self._store, self._batch_max = store, batch_max
        self._waiting: list[Settlement] = []
        self._arrived = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        self.settled = self.lost = self.unsettled = 0

    def add(self, settlement: Settlement) -> None:
        self._waiting.append(settlement)
        self.unsettled += 1
        if len(self._waiting) == 1:
            self._empty.clear()
            self._arrived.set()

    async def flush(self) -> None:
        """Return once nothing waits to be settled."""
        await self._empty.wait()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            batch = self._waiting[: self._batch_max]
            del self._waiting[: self._batch_max]
            again, after_s = await self._settle(batch)
            self._waiting[:0] = again
            self.unsettled -= len(batch) - len(again)
            if not self._waiting:
                self._arrived.clear()
                self._empty.set()
            elif again:
                await self._store.clock.sleep(after_s)

    async def _settle(self, batch: list[Settlement]) -> tuple[list[Settlement], float]:
        """Return those to be tried again, and after how long."""
        try:
            outcomes = await self._commit(batch)
        except RetryLaterError as fault:
            return self._unexpired(batch), fault.after_s
        again: list[Settlement] = []
        after_s = 0.0
        for one, outcome in zip(batch, outcomes, strict=True):
            if not isinstance(outcome, HoldfastError):
                self.settled += 1
            elif isinstance(outcome, RetryLaterError):
                again.append(one)
                after_s = max(after_s, outcome.after_s)
            else:
                self.lost += 1
                if not isinstance(outcome, LeaseLostError):
                    _log.warning("settling was refused", delivery=one.delivery.id, code=outcome.code,
                                 error=outcome.message)  # fmt: skip
        return self._unexpired(again), after_s

    def _commit(self, batch: list[Settlement]) -> Awaitable[list[Outcome]]:
        fields = batch[0].fields
        if fields and all(one.fields == fields for one in batch):
            return self._store.settle_claimed([one.delivery for one in batch], *fields)
        return self._store.settle(
            [[fenced_patch(one.delivery, one.fields)] if one.fields else one.writes for one in batch]
        )

    def _unexpired(self, batch: list[Settlement]) -> list[Settlement]:
        now = self._store.clock.monotonic()
        return [one for one in batch if one.until_s > now]
