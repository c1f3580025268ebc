"""The claim → act → settle loop under every part that works on due documents, and waiting.

    subscription, next due, poll ──► claim (leased, fenced, as free room allows) ──► act, concurrently
               ▲                                                                        │ settles itself
               └──────────────── back off after a failing store ◄──────────────────────┘

A part subclasses `WorkerLoop` and says how to act; `run(stop)` subscribes, claims, starts, waits, and on stop
lets what is under way finish.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar

import structlog

from holdfast.backoff import BackOff
from holdfast.clock import Clock
from holdfast.errors import HoldfastError, RetryLaterError
from holdfast.ids import ulid
from holdfast.model import Document
from holdfast.store import Snapshot, Store, Subscription

D = TypeVar("D", bound=Document)

# The injected clock ends a wait; a subscription's own limit only keeps a forgotten one from hanging forever.
SUBSCRIPTION_S_MAX: Final = 3_600.0
IDLE_S_MIN: Final = 0.005
STORE_BACK_OFF: Final = BackOff(first_s=0.1, wait_s_max=1.0, jitter=0.5)
STORE_WAIT_S_MAX: Final = 5.0
_log: Final = structlog.get_logger("holdfast.worker")


class WorkerLoop(Generic[D]):
    """Claims due documents and acts on them, at most `concurrency` at once, until told to stop.

    `poll_s` is the longest wait between two claims and `gap_s` the shortest; after a stop, what is under way
    gets `stop_s` (None: all the time it takes) to finish and is then cancelled. A subclass implements `_act`,
    and overrides other hooks where its documents are claimed or waited for differently.
    """

    def __init__(
        self,
        store: Store,
        kind: type[D],
        *,
        concurrency: int,
        lease_s: float,
        poll_s: float,
        gap_s: float = 0.0,
        stop_s: float | None = None,
        owner: str = "",
    ) -> None:
        self._store, self._clock, self._kind = store, store.clock, kind
        self._concurrency, self._lease_s = concurrency, lease_s
        self._poll_s, self._gap_s, self._stop_s = poll_s, gap_s, stop_s
        self.owner = owner or worker_id()
        self.last_turn_at: datetime | None = None
        self.errors, self.last_error = 0, ""
        self._failures = 0
        self._wake = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], D | None] = {}

    @property
    def under_way(self) -> int:
        """How many documents this worker is acting on."""
        return len(self._tasks)

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set, then let what is under way finish; a cancelled loop cancels it."""
        subscriptions = {self._watch(kind): notify for kind, notify in self._subscribed().items()}
        listeners = [asyncio.create_task(_listen(*pair)) for pair in subscriptions.items()]
        listeners.append(asyncio.create_task(self._wake_on(stop)))
        try:
            while not stop.is_set():
                self._wake.clear()
                await self._wait(await self._guarded_step(stop))
            await self._wind_down()
        finally:
            await cancel_all([*listeners, *self._tasks])
            for subscription in subscriptions:
                subscription.close()

    async def turn(self) -> int:
        """Claim once and act on what was claimed; return how many."""
        started = await self._start(self._concurrency)
        await asyncio.gather(*started)
        return len(started)

    async def work_off(self) -> int:
        """Claim and act until nothing is due any more; return how many were acted on."""
        count, pending = 0, set[asyncio.Task[None]]()
        try:
            while True:
                started = await self._start(self._concurrency - len(pending))
                count += len(started)
                pending.update(started)
                if not pending:
                    return count
                pending = await _some_ended(pending, leave=self._concurrency * 3 // 4)
        finally:
            await asyncio.gather(*pending, return_exceptions=True)

    # -- hooks ------------------------------------------------------------------------------------

    async def _act(self, claimed: Snapshot[D], until_s: float) -> None:
        """Do what the document is due for and settle it before its lease ends, by the monotonic clock."""
        raise NotImplementedError

    async def _claim(self, room: int) -> list[Snapshot[D]]:
        return await self._store.claim_due(self._kind, limit=room, lease_s=self._lease_s, owner=self.owner)

    def _subscribed(self) -> Mapping[type[Document], Callable[[], None]]:
        return {self._kind: self._wake.set}

    def _watch(self, kind: type[Document]) -> Subscription:
        return self._store.watch(kind)

    async def _step(self) -> float:
        """Claim and start what there is room for; return the seconds in which nothing new can come due."""
        while (room := self._concurrency - len(self._tasks)) > 0:
            if not await self._start(room):
                due = await self._store.next_due(self._kind)
                left_s = self._poll_s if due is None else (due - self._clock.now()).total_seconds()
                return min(self._poll_s, max(IDLE_S_MIN, left_s))
        return self._poll_s

    async def _wind_down(self) -> None:
        if self._tasks:
            ended = asyncio.wait(set(self._tasks))
            await (ended if self._stop_s is None else wait_first(ended, self._clock.sleep(self._stop_s)))

    # -- the mechanism ----------------------------------------------------------------------------

    async def _start(self, room: int) -> list[asyncio.Task[None]]:
        self.last_turn_at = self._clock.now()
        until_s = self._clock.monotonic() + self._lease_s
        return [self._spawn(self._act(one, until_s), one.doc) for one in await self._claim(room)]

    def _spawn(self, work: Coroutine[Any, Any, None], document: D | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks[task] = document
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if len(self._tasks) >= self._concurrency:
            self._wake.set()
        self._tasks.pop(task, None)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._note(fault)

    def _note(self, fault: BaseException) -> None:
        self.errors += 1
        trace: BaseException | None = fault
        self.last_error = repr(fault)
        if isinstance(fault, HoldfastError):
            trace, self.last_error = None, f"{fault.code}: {fault.message}"
        _log.warning("worker failed", worker=type(self).__name__, error=self.last_error, exc_info=trace)

    async def _guarded_step(self, stop: asyncio.Event) -> float:
        """Take a step; a failing store is waited out here, so that what is under way goes on meanwhile."""
        self.last_turn_at = self._clock.now()
        try:
            wait_s = await self._step()
        except HoldfastError as fault:
            self._note(fault)
            self._failures += 1
            asked_s = fault.after_s if isinstance(fault, RetryLaterError) else 0.0
            pause_s = min(max(asked_s, STORE_BACK_OFF.wait_s(self._failures)), STORE_WAIT_S_MAX)
            await wait_for_wake(self._clock, pause_s, stop=stop)
            return 0.0
        self._failures = 0
        if self._gap_s:
            # By real time, whatever the clock says: it spares the machine and means nothing else.
            await asyncio.sleep(self._gap_s)
        return wait_s

    async def _wait(self, seconds: float) -> None:
        if self._wake.is_set() or seconds <= 0:
            await asyncio.sleep(0)
            return
        timer = asyncio.create_task(self._wake_after(seconds))
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _wake_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._wake.set()

    async def _wake_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._wake.set()


@lru_cache(1)
def _process_id(pid: int) -> str:
    return f"{socket.gethostname()}-{pid}-{ulid()[-6:]}"


def process_id() -> str:
    """Return the unique name of this process; a fork gets one of its own."""
    return _process_id(os.getpid())


def worker_id() -> str:
    """Return a unique owner of claims, which begins with the name of its process and a dot."""
    return f"{process_id()}.{ulid()[-6:]}"


def last_lane(lanes: Iterable[str], *, after: str | None) -> str | None:
    """The last of these lanes in the round that began after one: where the next round begins."""
    start = after or ""
    return max(lanes, key=lambda lane: (lane <= start, lane), default=after)


async def _listen(subscription: Subscription, notify: Callable[[], None]) -> None:
    while True:
        if await subscription.wait(SUBSCRIPTION_S_MAX):
            notify()


async def _some_ended(tasks: set[asyncio.Task[None]], *, leave: int) -> set[asyncio.Task[None]]:
    """Wait until at most `leave` are under way; a claim for each that ends would cost as much as its work."""
    while tasks:
        done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        if len(tasks) <= leave:
            break
    return tasks


async def wait_for_wake(
    clock: Clock, seconds: float, *, wake: Subscription | None = None, stop: asyncio.Event | None = None
) -> None:
    """Return after `seconds` by the clock, or sooner when `wake` is notified or `stop` is set.

    Example: `await wait_for_wake(store.clock, 5.0, wake=subscription, stop=stop)`
    """
    if stop is not None and stop.is_set():
        return
    reasons: list[Coroutine[Any, Any, object]] = [clock.sleep(seconds)]
    if wake is not None:
        reasons.append(wake.wait(SUBSCRIPTION_S_MAX))
    if stop is not None:
        reasons.append(stop.wait())
    await wait_first(*reasons)


async def wait_first(*reasons: Coroutine[Any, Any, object]) -> None:
    """Run all, return when the first has ended, and cancel the others; a fault of the first is raised."""
    tasks = [asyncio.ensure_future(reason) for reason in reasons]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await cancel_all(tasks)
    for task in done:
        task.result()


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel these and return when they are over, however they end."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
