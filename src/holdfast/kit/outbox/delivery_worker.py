"""Sends what the endpoints' queues let through: signs, sends, judges, hands over to be settled."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from holdfast import tracing
from holdfast.clock import to_us
from holdfast.errors import HoldfastError
from holdfast.kit.outbox import ordering
from holdfast.kit.outbox.attempt_record import CONTENT_TYPE, METHOD, Header
from holdfast.kit.outbox.circuits import CircuitRecorder
from holdfast.kit.outbox.endpoint_admin import Endpoints, OnNotice
from holdfast.kit.outbox.endpoint_queue import SETTLE_S, ClaimedDelivery, EndpointQueue
from holdfast.kit.outbox.models import Delivery, Endpoint, OutboxModels
from holdfast.kit.outbox.outcome import (
    AttemptOutcome,
    judge,
    record_attempt,
    release_write,
    settle_writes,
)
from holdfast.kit.outbox.settler import Settlement, Settler
from holdfast.kit.outbox.shared_rate import EndpointRates, ReservedTurns
from holdfast.net import ConnectionShares, OutgoingRequest, ReceiverResponse, Sender, SendFailure
from holdfast.store import Store, Write

# Adds headers to the signature's, for each attempt.
Headers = Callable[[Delivery, Endpoint], Sequence[Header]]
Result = ReceiverResponse | SendFailure
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

    `wake` asks for a turn; `look` for one that claims.
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
    ) -> None:
        self._store, self._sender, self._settler, self._shares = store, sender, settler, shares
        self._clock = store.clock
        self._rates, self._circuits = EndpointRates(store, models), CircuitRecorder(store)
        self._owner, self._headers, self._on_notice, self._models = owner, headers, on_notice, models
        self._spawn, self._wake, self._look = spawn, wake, look
        self._retries_us: list[int] = []
        self.in_flight = 0
        self.stopping = False
        self.counts = Counts()

    # -- sending ----------------------------------------------------------------------------------

    def send_waiting(self, queue: EndpointQueue) -> None:
        """Start as many sends as the queue's limits let through."""
        while queue.waiting and not self.stopping:
            claimed = queue.take(self._clock.monotonic())
            if claimed is None:
                if queue.turns is not None:
                    self._reserve_turns(queue, queue.turns)
                return
            self.in_flight += 1
            self._spawn(self._send_in_turn(queue, claimed))

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

    async def _send_in_turn(self, queue: EndpointQueue, first: ClaimedDelivery) -> None:
        """Send one after another for as long as the queue has something to send."""
        claimed: ClaimedDelivery | None = first
        try:
            while claimed is not None:
                await self._attempt(queue, claimed)
                claimed = None if self.stopping else queue.take(self._clock.monotonic())
                if queue.waiting and queue.in_flight < queue.concurrency:
                    self.send_waiting(queue)  # an answer may let more go at once
        finally:
            self.in_flight -= 1
        if queue.wants_refill(self._clock.monotonic()):
            self._wake()

    async def _attempt(self, queue: EndpointQueue, claimed: ClaimedDelivery) -> None:
        at, started = self._clock.now(), self._clock.monotonic()
        headers: list[Header] = []
        try:
            self._sign(queue, claimed.delivery, at, headers=headers)
            result: Result = await (
                self._send_in_place(queue, claimed, headers)
                if queue.in_doubt or queue.slow
                else self._exchange(queue, claimed, headers)
            )
        except SendFailure as failure:
            result = failure
        latency_s = self._clock.monotonic() - started
        record_attempt(
            claimed.delivery, result, at=at, latency_s=latency_s, url=queue.recorded_url, headers=headers
        )
        self._conclude(queue, claimed, result, latency_s=latency_s)

    def _sign(self, queue: EndpointQueue, delivery: Delivery, at: datetime, *, headers: list[Header]) -> None:
        """Add the request's headers, also where that fails midway."""
        endpoint, sign = queue.endpoint, queue.sign
        assert endpoint is not None
        assert sign is not None
        headers.append((CONTENT_TYPE, delivery.content_type))
        headers += sign(delivery.event_id, to_us(at) // 1_000_000, delivery.body)
        if self._headers is not None:
            headers += self._headers(delivery, endpoint)
        self.counts.sent += 1

    async def _send_in_place(
        self, queue: EndpointQueue, claimed: ClaimedDelivery, headers: list[Header]
    ) -> ReceiverResponse:
        """Send to a receiver that may hang or be slow: it leaves connections to others."""
        async with self._shares.place(queue.host, in_doubt=queue.in_doubt, within_s=self._left_s(claimed)):
            return await self._exchange(queue, claimed, headers)

    def _left_s(self, claimed: ClaimedDelivery) -> float:
        return claimed.until_s - SETTLE_S - self._clock.monotonic()

    def _exchange(
        self, queue: EndpointQueue, claimed: ClaimedDelivery, headers: list[Header]
    ) -> Awaitable[ReceiverResponse]:
        endpoint, delivery = queue.endpoint, claimed.delivery
        assert endpoint is not None
        # A send must not outlive its lease; what it waited for a place is not the receiver's fault.
        timeout_s = min(endpoint.timeout_s, self._left_s(claimed))
        if tracing.on:
            return self._exchange_traced(endpoint, delivery, headers, timeout_s=timeout_s)
        return self._sender.send(_request(endpoint, delivery, headers, timeout_s))

    async def _exchange_traced(
        self, endpoint: Endpoint, delivery: Delivery, headers: list[Header], *, timeout_s: float
    ) -> ReceiverResponse:
        with tracing.span(
            f"deliver {delivery.event_type}", kind="client", parent=delivery.trace,
            delivery=delivery.id, endpoint=delivery.endpoint_id, attempt=delivery.attempt_count + 1,
        ) as span:  # fmt: skip
            headers.append((tracing.HEADER, tracing.traceparent()))
            try:
                response = await self._sender.send(_request(endpoint, delivery, headers, timeout_s))
            except SendFailure as failure:
                tracing.mark_failed(span, failure.reason)
                raise
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= 400:
                tracing.mark_failed(span, str(response.status))
            return response

    def _conclude(
        self, queue: EndpointQueue, claimed: ClaimedDelivery, result: Result, *, latency_s: float
    ) -> None:
        delivery, endpoint = claimed.delivery, queue.endpoint
        assert endpoint is not None
        now, monotonic = self._clock.now(), self._clock.monotonic()
        outcome = judge(result, endpoint.retry, attempt=delivery.attempt_count, now=now, roll=random.random())
        hung = isinstance(result, SendFailure) and result.reason == "timeout"
        took_s = latency_s if isinstance(result, SendFailure) else result.latency_s
        switched = queue.finish(
            claimed, healthy=outcome.healthy, hung=hung, now=monotonic, took_s=took_s,
            waited_s=latency_s - took_s,
        )  # fmt: skip
        if switched:
            self._spawn(self._circuits.record(queue))
        if outcome.hold_s:
            queue.close_until(monotonic + outcome.hold_s)
        setattr(self.counts, outcome.status, getattr(self.counts, outcome.status) + 1)
        writes = settle_writes(delivery, outcome, now=now, models=self._models)
        if endpoint.fifo and outcome.status != "failed":
            self._spawn(self._finish_head(delivery, writes, now))
        else:
            self._settler.add(Settlement(delivery.id, writes, claimed.until_s))
        if outcome.status != "delivered":
            self._after_failure(queue, delivery, outcome)

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
            delivery = claimed.delivery
            self._settler.add(Settlement(delivery.id, [release_write(delivery, now=now)], claimed.until_s))

    def bury(self, queue: EndpointQueue) -> None:
        """Give up what waits: its endpoint is no more."""
        now, outcome = self._clock.now(), AttemptOutcome("dead", "the endpoint is gone")
        for claimed in queue.take_all():
            writes = settle_writes(claimed.delivery, outcome, now=now, models=self._models)
            self._settler.add(Settlement(claimed.delivery.id, writes, claimed.until_s))

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


def _request(
    endpoint: Endpoint, delivery: Delivery, headers: Sequence[Header], timeout_s: float
) -> OutgoingRequest:
    return OutgoingRequest(
        METHOD, endpoint.url, tuple(headers), delivery.body, timeout_s, endpoint.response_bytes_max
    )
