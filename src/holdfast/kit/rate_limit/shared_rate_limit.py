"""Acquiring turns: callers of one key queue in the process, and share one commit per reservation."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final
from weakref import WeakValueDictionary

from holdfast.clock import from_us, to_us
from holdfast.errors import TooManyRequestsError
from holdfast.kit import NO_TENANT
from holdfast.kit.rate_limit.decision import RateQuota, Reservation, reserve
from holdfast.kit.rate_limit.models import RateLimitDocument, RateLimitFields
from holdfast.store import Store, Transaction, put

# So few at a time that no process takes the turns of others who come a moment later.
BATCH_MAX: Final = 16
ATTEMPTS: Final = 100


class SharedRateLimit:
    """At most `quota.count` in any period for each key, over all processes on the store.

    Example:
        limit = SharedRateLimit(store, "telegram", RateQuota(count=30))
        await limit.acquire("all")
    """

    def __init__(
        self, store: Store, name: str, quota: RateQuota, *, model: type[RateLimitFields] = RateLimitDocument
    ) -> None:
        self._tenant_id = store.tenant_id or NO_TENANT
        self._store, self._clock = store.tenant(self._tenant_id), store.clock
        self._name, self.quota, self._model = name, quota, model
        self._waiting: dict[str, deque[asyncio.Future[int]]] = {}
        self._reserving: dict[str, asyncio.Task[None]] = {}
        self._commit_s = 0.0

    async def acquire(self, key: str = "") -> float:
        """Wait for this key's next free turn, after all who asked before; return the seconds waited."""
        began_s, late = self._clock.monotonic(), False
        while True:
            turn_us = await self._next_turn(key, first=late)
            await self._clock.sleep(max(0.0, (turn_us - self._clock.now_us()) / 1e6))
            # A turn taken too late would fall into the same period as turns of later callers.
            late = self._clock.now_us() - turn_us > self.quota.late_us_max
            if not late:
                return self._clock.monotonic() - began_s

    async def _next_turn(self, key: str, *, first: bool) -> int:
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(key, deque())
        (waiting.appendleft if first else waiting.append)(turn)
        if key not in self._reserving:
            self._reserving[key] = asyncio.create_task(self._reserve_for_all(key))
        return await turn

    async def try_acquire(self, key: str = "") -> None:
        """Take a turn that is free now, or raise TooManyRequestsError with the seconds until the next."""

        async def act(tx: Transaction) -> int:
            reservation, now_us = await self._reserve(tx, key, callers=1)
            wait_us = reservation.turns_us[0] - now_us
            if wait_us <= 0:
                self._write(tx, key, reservation)
            return wait_us

        wait_us = await self._store.transact(act, attempts=ATTEMPTS)
        if wait_us > 0:
            count, period_s = self.quota.count, self.quota.period_s
            text = f"{self._name} takes {count} in {period_s:g} s; the next is free in {wait_us / 1e6:.1f} s"
            raise TooManyRequestsError(text, after_s=wait_us / 1e6)

    async def _reserve_for_all(self, key: str) -> None:
        waiting = self._waiting[key]
        try:
            while waiting:
                batch = [waiting.popleft() for _ in range(min(len(waiting), BATCH_MAX))]
                await self._reserve_for(key, [turn for turn in batch if not turn.done()])
        finally:
            del self._waiting[key], self._reserving[key]

    async def _reserve_for(self, key: str, batch: list[asyncio.Future[int]]) -> None:
        try:
            turns_us = await self.reserve(key, callers=len(batch))
        except Exception as fault:
            for turn in batch:
                if not turn.done():
                    turn.set_exception(fault)
            return
        for turn, turn_us in zip(batch, turns_us, strict=True):
            if not turn.done():
                turn.set_result(turn_us)

    async def reserve(self, key: str, *, callers: int) -> tuple[int, ...]:
        """Reserve the next turns, in microseconds of the store's time, for callers that keep to them.

        A turn that is taken later than `quota.late_us_max` after its time must be forfeited.
        """

        async def act(tx: Transaction) -> Reservation:
            # Turns that would be over before the commit is, are of no use.
            reservation, _ = await self._reserve(tx, key, callers=callers, ahead_s=self._commit_s)
            self._write(tx, key, reservation)
            return reservation

        began_s = self._clock.monotonic()
        reservation = await self._store.transact(act, attempts=ATTEMPTS)
        self._commit_s = self._clock.monotonic() - began_s
        return reservation.turns_us

    async def _reserve(
        self, tx: Transaction, key: str, *, callers: int, ahead_s: float = 0.0
    ) -> tuple[Reservation, int]:
        stored = await tx.get(self._model, self._id(key))
        now_us = self._clock.now_us() + round(ahead_s * 1e6)
        next_us = 0 if stored is None else to_us(stored.doc.next_at)
        return reserve(self.quota, next_us, now_us=now_us, callers=callers), now_us

    def _write(self, tx: Transaction, key: str, reservation: Reservation) -> None:
        next_at = from_us(reservation.next_us)
        tx.write(put(self._model(id=self._id(key), tenant_id=self._tenant_id, next_at=next_at)))

    def _id(self, key: str) -> str:
        """Ids are shared by all tenants, so it carries the tenant."""
        return ":".join(part.replace(":", "::") for part in (self._tenant_id, self._name, key))


class NestedRateLimit:
    """A limit for each key within a limit for all of them: a caller's turn is free under both.

    Acquired one after the other, the turns under the one would pass while callers wait for the other.

    Example: `await NestedRateLimit(all_chats, one_chat).acquire(chat_id)`
    """

    def __init__(self, whole: SharedRateLimit, each: SharedRateLimit) -> None:
        self._whole, self._each = whole, each
        self._store, self._clock = whole._store, whole._clock
        self._callers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reserving, self._commit_s = asyncio.Lock(), 0.0

    async def acquire(self, key: str) -> None:
        """Wait for this key's next free turn, after all of this process who asked before."""
        late_us_max = min(self._whole.quota.late_us_max, self._each.quota.late_us_max)
        async with self._callers.setdefault(key, asyncio.Lock()):
            while True:
                turn_us, reserved = await self._reserve(key)
                await self._clock.sleep(max(0.0, (turn_us - self._clock.now_us()) / 1e6))
                if reserved and self._clock.now_us() - turn_us <= late_us_max:
                    return

    async def _reserve(self, key: str) -> tuple[int, bool]:
        """Reserve a turn; False with the time to ask again while the key itself has to wait.

        A turn reserved so far ahead would keep other keys waiting.
        """

        async def act(tx: Transaction) -> tuple[int, bool]:
            own, now_us = await self._each._reserve(tx, key, callers=1, ahead_s=self._commit_s)
            if own.turns_us[0] > now_us:
                return own.turns_us[0], False
            of_all, _ = await self._whole._reserve(tx, "", callers=1, ahead_s=self._commit_s)
            turn_us = of_all.turns_us[0]
            self._whole._write(tx, "", of_all)
            self._each._write(tx, key, Reservation((turn_us,), own.next_us + max(0, turn_us - now_us)))
            return turn_us, True

        async with self._reserving:
            began_s = self._clock.monotonic()
            turn = await self._store.transact(act, attempts=ATTEMPTS)
            self._commit_s = self._clock.monotonic() - began_s
        return turn
