"""Carrying deliveries out: takes what a lane lets through, signs, sends, judges, hands over to be settled."""

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
from holdfast.kit.outbox.endpoint_admin import Endpoints, OnNotice
from holdfast.kit.outbox.endpoint_queue import SETTLE_S, ClaimedDelivery, EndpointQueue
from holdfast.kit.outbox.models import Delivery, Endpoint, OutboxModels
from holdfast.kit.outbox.settler import Settlement, Settler
from holdfast.kit.outbox.verdict import AttemptOutcome, attempted, judge, release, settle
from holdfast.kit.worker_loop import cancel_all
from holdfast.net import OutgoingRequest, ReceiverResponse, Sender, SendFailure
from holdfast.store import Store, Write

# Headers beside the signature's, made anew for each attempt.
Headers = Callable[[Delivery, Endpoint], Sequence[tuple[str, str]]]

_log: Final = structlog.get_logger("holdfast.outbox")


class Counts(msgspec.Struct):
    """What a courier has done since it began."""

    sent: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0


class DeliveryWorker:
    """Sends for all lanes of one dispatcher; `wake` and `look` ring that dispatcher."""

    def __init__(
        self,
        store: Store,
        sender: Sender,
        settler: Settler,
        *,
        owner: str,
        headers: Headers | None,
        on_notice: OnNotice | None,
        models: OutboxModels,
        wake: Callable[[], None],
        look: Callable[[], None],
    ) -> None:
        self._store, self._sender, self._settler = store, sender, settler
        self._clock = store.clock
        self._owner, self._headers, self._on_notice, self._models = owner, headers, on_notice, models
        self._wake, self._look = wake, look
        self._dues: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.in_flight = 0
        self.stopping = False
        self.counts = Counts()

    # -- sending ----------------------------------------------------------------------------------

    def pump(self, lane: EndpointQueue) -> None:
        """Start as many sends as the lane's limits let through."""
        while lane.waiting and not self.stopping:
            held = lane.take(self._clock.monotonic())
            if held is None:
                return
            self.in_flight += 1
            self._spawn(self._serve(lane, held))

    async def _serve(self, lane: EndpointQueue, first: ClaimedDelivery) -> None:
        """Send one after another for as long as the lane has something to send."""
        held: ClaimedDelivery | None = first
        while held is not None:
            at, started = self._clock.now(), self._clock.monotonic()
            result = await self._send(lane, held, at, left_s=held.until - SETTLE_S - started)
            ended = self._clock.monotonic()
            attempted(held.delivery, result, at=at, latency_s=ended - started)
            self._conclude(lane, held, result, latency_s=ended - started)
            held = None if self.stopping else lane.take(ended)
            if lane.waiting and lane.in_flight < lane.concurrency:
                self.pump(lane)  # an answer lets more go at once
        self.in_flight -= 1
        if lane.wants_refill(self._clock.monotonic()):
            self._wake()

    async def _send(
        self, lane: EndpointQueue, held: ClaimedDelivery, at: datetime, *, left_s: float
    ) -> ReceiverResponse | SendFailure:
        delivery, endpoint, sign = held.delivery, lane.endpoint, lane.sign
        assert endpoint is not None
        assert sign is not None
        headers = [("content-type", delivery.content_type)]
        headers += sign(delivery.event_id, to_us(at) // 1_000_000, delivery.body)
        if self._headers is not None:
            headers += self._headers(delivery, endpoint)
        # A send must not outlive its lease.
        timeout_s = min(endpoint.timeout_s, left_s)
        request = OutgoingRequest(
            "POST", endpoint.url, tuple(headers), delivery.body, timeout_s, endpoint.response_bytes_max,
            lane.in_doubt, lane.slow, left_s - timeout_s,
        )  # fmt: skip
        self.counts.sent += 1
        if tracing.on:
            return await self._send_traced(request, delivery)
        return await self._result(request)

    async def _result(self, request: OutgoingRequest) -> ReceiverResponse | SendFailure:
        try:
            return await self._sender.send(request)
        except SendFailure as failure:
            return failure

    async def _send_traced(
        self, request: OutgoingRequest, delivery: Delivery
    ) -> ReceiverResponse | SendFailure:
        with tracing.span(
            f"deliver {delivery.event_type}", kind="client", parent=delivery.trace,
            delivery=delivery.id, endpoint=delivery.endpoint_id, attempt=delivery.attempt_count + 1,
        ) as part:  # fmt: skip
            told = (*request.headers, (tracing.HEADER, tracing.traceparent()))
            result = await self._result(msgspec.structs.replace(request, headers=told))
            if isinstance(result, SendFailure):
                tracing.mark_failed(part, result.reason)
            else:
                part.set_attribute("http.response.status_code", result.status)
                if result.status >= 400:
                    tracing.mark_failed(part, str(result.status))
        return result

    def _conclude(
        self,
        lane: EndpointQueue,
        held: ClaimedDelivery,
        result: ReceiverResponse | SendFailure,
        *,
        latency_s: float,
    ) -> None:
        delivery, endpoint = held.delivery, lane.endpoint
        assert endpoint is not None
        now = self._clock.now()
        verdict = judge(result, endpoint.retry, attempt=delivery.attempt_count, now=now, roll=random.random())
        monotonic = self._clock.monotonic()
        hung = isinstance(result, SendFailure) and result.reason == "timeout"
        took_s = latency_s if isinstance(result, SendFailure) else result.latency_s
        lane.done(
            held, healthy=verdict.healthy, hung=hung, now=monotonic, took_s=took_s,
            waited_s=latency_s - took_s,
        )  # fmt: skip
        if verdict.hold_s:
            lane.shut(monotonic + verdict.hold_s)
        setattr(self.counts, verdict.status, getattr(self.counts, verdict.status) + 1)
        writes = settle(delivery, verdict, now=now, letters=self._models.dead_letter)
        if endpoint.fifo and verdict.status != "failed":
            self._spawn(self._leave(delivery, writes, now))
        else:
            self._settler.add(Settlement(writes, label=delivery.id, until=held.until))
        if verdict.status != "delivered":
            self._after_failure(lane, delivery, verdict)

    def _after_failure(self, lane: EndpointQueue, delivery: Delivery, verdict: AttemptOutcome) -> None:
        if delivery.next_attempt_at is not None:
            heapq.heappush(self._dues, to_us(delivery.next_attempt_at))
        if verdict.endpoint_gone and lane.endpoint is not None:
            self._spawn(self._disable(lane.endpoint, verdict.reason))
        now = self._clock.monotonic()
        if lane.waiting and (lane.open_at(now) > now or len(lane.waiting) > lane.capacity):
            self.give_back(lane)
        self._wake()

    # -- not sending ------------------------------------------------------------------------------

    def give_back(self, lane: EndpointQueue) -> None:
        """Release what waits in a lane: its lane is shut, or this process ends."""
        now = self._clock.now()
        for held in lane.empty():
            self._settler.add(
                Settlement([release(held.delivery, now=now)], label=held.delivery.id, until=held.until)
            )

    def bury(self, lane: EndpointQueue) -> None:
        """What waits in the lane has nowhere to go: its endpoint is no more."""
        now, verdict = self._clock.now(), AttemptOutcome("dead", "the endpoint is gone")
        for held in lane.empty():
            writes = settle(held.delivery, verdict, now=now, letters=self._models.dead_letter)
            self._settler.add(Settlement(writes, label=held.delivery.id, until=held.until))
        lane.more = False

    async def _leave(self, delivery: Delivery, writes: Sequence[Write], now: datetime) -> None:
        """Finish the head of an ordered lane; a lost lease means that somebody else will."""
        try:
            await ordering.leave(self._store, delivery, writes, models=self._models, now=now)
        except HoldfastError as fault:
            _log.warning("settling was refused", delivery=delivery.id, code=fault.code, error=fault.message)
        self._look()

    async def _disable(self, endpoint: Endpoint, reason: str) -> None:
        home = self._store.tenant(endpoint.tenant_id)
        endpoints = Endpoints(home, on_notice=self._on_notice, models=self._models)
        with contextlib.suppress(HoldfastError):
            await endpoints.disable(endpoint.id, reason=f"the receiver answered {reason}", by=self._owner)

    # -- time -------------------------------------------------------------------------------------

    def next_due_us(self) -> int | None:
        """When the next retry that this process knows of is due."""
        return self._dues[0] if self._dues else None

    def due_by(self, now_us: int) -> bool:
        """Whether a known retry is due; forgets those that are."""
        due = False
        while self._dues and self._dues[0] <= now_us:
            heapq.heappop(self._dues)
            due = True
        return due

    # -- tasks ------------------------------------------------------------------------------------

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finished(self) -> None:
        """Return once no send is under way."""
        while under_way := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(under_way)

    async def abandon(self) -> None:
        """Cut off what is still under way; its leases end by themselves."""
        await cancel_all(self._tasks)
