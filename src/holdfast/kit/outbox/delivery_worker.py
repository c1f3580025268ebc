"""Sends what the endpoints' queues let through: signs, sends, judges, hands over to be settled."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from holdfast import tracing
from holdfast.clock import to_us
from holdfast.errors import HoldfastError
from holdfast.kit.outbox import ordering
from holdfast.kit.outbox.attempt_record import Header
from holdfast.kit.outbox.circuits import CircuitRecorder
from holdfast.kit.outbox.endpoint_admin import Endpoints, OnNotice
from holdfast.kit.outbox.endpoint_queue import ClaimedDelivery, EndpointQueue
from holdfast.kit.outbox.models import Delivery, Endpoint, OutboxModels
from holdfast.kit.outbox.outcome import (
    AttemptOutcome,
    judge,
    record_attempt,
    release_fields,
    settle_fields,
    settle_writes,
)
from holdfast.kit.outbox.outgoing_attempt import OutgoingAttempt
from holdfast.kit.outbox.settler import Settlement, Settler
from holdfast.kit.outbox.shared_rate import EndpointRates, ReservedTurns
from holdfast.net import ConnectionShares, Sender, SendFailure, SendResult
from holdfast.store import Store, Write

# Adds headers to the signature's, for each attempt.
Headers = Callable[[Delivery, Endpoint], Sequence[Header]]
Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]

RESERVE_AGAIN_S: Final = 1.0
_log: Final = structlog.get_logger("holdfast.outbox")


class Counts(msgspec.Struct):
    """Attempts since the start, by what became of them."""

    sent: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0


class DeliveryWorker:
    """Sends for all queues of one dispatcher, whose tasks it spawns and whose loop it wakes.

    `wake` asks for a turn, `look` for one that claims; `note` takes faults that nobody awaits.
    """

    def __init__(
        self,
        store: Store,
        sender: Sender,
        settler: Settler,
        *,
        shares: ConnectionShares,
        owner: str,
        headers: Headers | None,
        on_notice: OnNotice | None,
        models: OutboxModels,
        spawn: Spawn,
        wake: Callable[[], None],
        look: Callable[[], None],
        note: Callable[[BaseException], None],
    ) -> None:
        self._store, self._sender, self._settler, self._shares = store, sender, settler, shares
        self._clock = store.clock
        self._rates, self._circuits = EndpointRates(store, models), CircuitRecorder(store)
        self._owner, self._headers, self._on_notice, self._models = owner, headers, on_notice, models
        self._spawn, self._wake, self._look, self._note = spawn, wake, look, note
        self._retries_us: list[int] = []
        self._started: set[OutgoingAttempt] = set()  # in flight, and no task waits for them
        self._ended: list[tuple[OutgoingAttempt, SendResult, float]] = []  # by the monotonic clock
        self._idle = asyncio.Event()
        self.in_flight = 0
        self.stopping = False
        self.counts = Counts()

    # -- sending ----------------------------------------------------------------------------------

    def send_waiting(self, queue: EndpointQueue) -> None:
        """Start as many sends as the queue's limits let through."""
        while queue.waiting and not self.stopping:
            now = self._clock.monotonic()
            claimed = queue.take(now)
            if claimed is None:
                if queue.turns is not None:
                    self._reserve_turns(queue, queue.turns)
                return
            self.in_flight += 1
            self._begin(OutgoingAttempt(queue, claimed, self._end, at=self._clock.now(), started_s=now))
            if queue.in_flight >= queue.concurrency:
                return

    def _reserve_turns(self, queue: EndpointQueue, turns: ReservedTurns) -> None:
        count = queue.turns_wanted(self._clock.monotonic())
        if count:
            turns.reserving = True
            self._spawn(self._reserve(queue, turns, count=count))

    async def _reserve(self, queue: EndpointQueue, turns: ReservedTurns, *, count: int) -> None:
        try:
            if queue.endpoint is not None:
                turns.add(await self._rates.reserve(queue.endpoint, turns.quota, count=count))
        except HoldfastError as fault:
            _log.warning("no turns of an endpoint's rate", endpoint=queue.id, code=fault.code)
            queue.close_until(self._clock.monotonic() + RESERVE_AGAIN_S)
        finally:
            turns.reserving = False
            self._wake()

    def _begin(self, attempt: OutgoingAttempt) -> None:
        """Sign and send, by a task only where a connection or a place must be waited for."""
        queue, delivery = attempt.queue, attempt.claimed.delivery
        assert queue.sign is not None
        try:
            # Headers are added also where signing fails midway.
            attempt.headers += queue.sign(delivery.event_id, int(attempt.at.timestamp()), delivery.body)
            if self._headers is not None:
                attempt.headers += self._headers(delivery, attempt.endpoint)
            self.counts.sent += 1
            if not (queue.in_doubt or queue.slow or tracing.on):
                attempt.exchange = self._sender.start(attempt.request(attempt.started_s), attempt.end)
        # Later, because the end of one attempt begins the next.
        except SendFailure as failure:
            asyncio.get_running_loop().call_soon(self._end, attempt, failure)
            return
        except Exception as fault:
            asyncio.get_running_loop().call_soon(self._give_up, attempt, fault)
            return
        if attempt.exchange is None:
            self._spawn(self._exchange(attempt))
        else:
            self._started.add(attempt)

    async def _exchange(self, attempt: OutgoingAttempt) -> None:
        """Send by a task. A receiver that may hang or be slow leaves connections to others."""
        queue, monotonic = attempt.queue, self._clock.monotonic
        try:
            if queue.in_doubt or queue.slow:
                within_s = attempt.left_s(monotonic())
                async with self._shares.place(queue.host, in_doubt=queue.in_doubt, within_s=within_s):
                    # What it waited for a place is not the receiver's fault.
                    result: SendResult = await attempt.send(self._sender, monotonic())
            else:
                result = await attempt.send(self._sender, monotonic())
        except SendFailure as failure:
            result = failure
        except Exception as fault:
            self._give_up(attempt, fault)
            return
        except asyncio.CancelledError:
            self.in_flight -= 1
            raise
        self._end(attempt, result)

    def abandon(self) -> None:
        """Close the connections of all sends in flight that no task waits for; their leases end."""
        started, self._started = self._started, set()
        self.in_flight -= len(started) + len(self._ended)
        self._ended.clear()  # nobody settles them any more
        for attempt in started:
            attempt.abandon()

    async def wait_idle(self) -> None:
        """Return once no send is in flight."""
        while self.in_flight:
            self._idle.clear()
            await self._idle.wait()

    # -- results ----------------------------------------------------------------------------------

    def _end(self, attempt: OutgoingAttempt, result: SendResult) -> None:
        """Settle an attempt by its result, and send what comes next."""
        if attempt.exchange is not None:
            if attempt not in self._started:
                return  # abandoned
            self._started.remove(attempt)
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._conclude_ended)
        self._ended.append((attempt, result, self._clock.monotonic()))

    def _conclude_ended(self) -> None:
        """Settle what ended in this iteration of the event loop, and send what comes next."""
        ended, self._ended = self._ended, []
        now = self._clock.now()
        for attempt, result, ended_s in ended:
            try:
                self._conclude(attempt, result, now=now, ended_s=ended_s)
            except Exception as fault:
                self._note(fault)  # its lease ends, and it is sent again
        self.in_flight -= len(ended)
        for queue in {attempt.queue: None for attempt, _, _ in ended}:
            self._go_on(queue)

    def _give_up(self, attempt: OutgoingAttempt, fault: Exception) -> None:
        """Leave a delivery to the end of its lease, because of a fault that is not its receiver's."""
        self._note(fault)
        if attempt.queue.finish(attempt.claimed, healthy=False, hung=False, now=self._clock.monotonic()):
            self._spawn(self._circuits.record(attempt.queue))
        self.in_flight -= 1
        self._go_on(attempt.queue)

    def _go_on(self, queue: EndpointQueue) -> None:
        if queue.waiting:
            self.send_waiting(queue)  # an answer may let more than one go
        elif queue.may_have_more and queue.wants_refill(self._clock.monotonic()):
            self._wake()
        if not self.in_flight:
            self._idle.set()

    def _conclude(
        self, attempt: OutgoingAttempt, result: SendResult, *, now: datetime, ended_s: float
    ) -> None:
        queue, delivery = attempt.queue, attempt.claimed.delivery
        endpoint = queue.endpoint or attempt.endpoint  # the endpoint may be no more by now
        latency_s = ended_s - attempt.started_s
        number = delivery.attempt_count + 1
        outcome = judge(result, endpoint.retry, attempt=number, now=now, roll=random.random())
        hung, took_s = False, latency_s
        if isinstance(result, SendFailure):
            hung = result.reason == "timeout"
        else:
            took_s = result.latency_s
        if queue.finish(
            attempt.claimed, healthy=outcome.healthy, hung=hung, now=ended_s, took_s=took_s,
            waited_s=latency_s - took_s,
        ):  # fmt: skip
            self._spawn(self._circuits.record(queue))
        if outcome.hold_s:
            queue.close_until(ended_s + outcome.hold_s)
        record_attempt(
            delivery, result, at=attempt.at, latency_s=latency_s, url=queue.recorded_url,
            headers=attempt.headers,
        )  # fmt: skip
        self._count(outcome.status)
        if endpoint.fifo and outcome.status != "failed":
            writes = settle_writes(delivery, outcome, now=now, models=self._models)
            self._spawn(self._finish_head(delivery, writes, now))
        else:
            self._settle(attempt.claimed, outcome, now)
        if outcome.status != "delivered":
            self._after_failure(queue, delivery, outcome)

    def _settle(self, claimed: ClaimedDelivery, outcome: AttemptOutcome, now: datetime) -> None:
        delivery = claimed.delivery
        fields = settle_fields(delivery, outcome, now=now)
        writes = () if fields else settle_writes(delivery, outcome, now=now, models=self._models)
        self._settler.add(Settlement(delivery, claimed.until_s, fields, writes))

    def _count(self, status: str) -> None:
        setattr(self.counts, status, getattr(self.counts, status) + 1)

    def _after_failure(self, queue: EndpointQueue, delivery: Delivery, outcome: AttemptOutcome) -> None:
        if delivery.next_attempt_at is not None:
            heapq.heappush(self._retries_us, to_us(delivery.next_attempt_at))
        if outcome.endpoint_gone and queue.endpoint is not None:
            self._spawn(self._disable(queue.endpoint, outcome.reason))
        now = self._clock.monotonic()
        if queue.waiting and (queue.open_at(now) > now or len(queue.waiting) > queue.capacity):
            self.release(queue)
        self._wake()

    # -- not sending ------------------------------------------------------------------------------

    def release(self, queue: EndpointQueue) -> None:
        """Release what waits: its endpoint takes nothing now, or this process ends."""
        now = self._clock.now()
        for claimed in queue.take_all():
            fields = release_fields(claimed.delivery, now=now)
            self._settler.add(Settlement(claimed.delivery, claimed.until_s, fields))

    def bury(self, queue: EndpointQueue) -> None:
        """Give up what waits: its endpoint is no more."""
        now, outcome = self._clock.now(), AttemptOutcome("dead", "the endpoint is gone")
        for claimed in queue.take_all():
            self._settle(claimed, outcome, now)

    async def _finish_head(self, delivery: Delivery, writes: Sequence[Write], now: datetime) -> None:
        """Settle the head of an ordered queue; a lost lease means that another worker will."""
        try:
            await ordering.leave(self._store, delivery, writes, models=self._models, now=now)
        except HoldfastError as fault:
            _log.warning("settling was refused", delivery=delivery.id, code=fault.code, error=fault.message)
        self._look()

    async def _disable(self, endpoint: Endpoint, reason: str) -> None:
        store = self._store.tenant(endpoint.tenant_id)
        endpoints = Endpoints(store, on_notice=self._on_notice, models=self._models)
        with contextlib.suppress(HoldfastError):
            await endpoints.disable(endpoint.id, reason=f"the receiver answered {reason}", by=self._owner)

    # -- retries ----------------------------------------------------------------------------------

    def next_retry_us(self) -> int | None:
        """Return when the next retry that this process knows of is due."""
        return self._retries_us[0] if self._retries_us else None

    def pop_due_retries(self, now_us: int) -> bool:
        """Forget the known retries that are due; return whether there were any."""
        due = False
        while self._retries_us and self._retries_us[0] <= now_us:
            heapq.heappop(self._retries_us)
            due = True
        return due
