"""Claim, sign, send, settle: the loop that empties the outbox, in as many processes as wanted.

bell, due time, poll ──► claim (fair over lanes, leased, fenced)
                             │
              lane ◄─────────┘   concurrency, rate, breaker
                │ sign, send
                ▼
             verdict ──► settler (batches, under the fencing number)
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import math
import os
import random
import socket
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import structlog

from holdfast.clock import to_us
from holdfast.errors import HoldfastError, RetryLaterError
from holdfast.ids import ulid
from holdfast.kit.outbox import fifo
from holdfast.kit.outbox.lane import SETTLE_S, Held, Lane
from holdfast.kit.outbox.lanes import Fetch, Lanes, Signing
from holdfast.kit.outbox.models import KINDS, Delivery, Endpoint, Kinds
from holdfast.kit.outbox.notices import Endpoints, OnNotice
from holdfast.kit.outbox.port import Answer, Outgoing, Sender, SendFailure
from holdfast.kit.outbox.settler import Settlement, Settler
from holdfast.kit.outbox.verdict import Verdict, attempted, judge, release, settle
from holdfast.store import Store, Wake

# Headers beside the signature's, made anew for each attempt.
Headers = Callable[[Delivery, Endpoint], Sequence[tuple[str, str]]]

# While work is at hand, new deliveries of other lanes are looked for only so often.
LOOK_EVERY_S: Final = 0.005
# An endpoint's change is acted on within this; a store that rings for every commit is asked no oftener.
ENDPOINTS_EVERY_S: Final = 0.2
ENDPOINTS_BACKSTOP_S: Final = 5.0
_log: Final = structlog.get_logger("holdfast.outbox")


class DispatcherStatus(msgspec.Struct, frozen=True):
    """How a dispatcher is doing, for health and metrics."""

    owner: str
    running: bool
    last_turn_at: datetime | None
    buffered: int
    in_flight: int
    unsettled: int
    sent: int
    delivered: int
    failed: int
    dead: int
    lost: int
    errors: int
    last_error: str


class Dispatcher:
    """Delivers what is due. `lease_s` must exceed every endpoint's `timeout_s` by more than a second.

    Limits of an endpoint hold per dispatcher; with n of them, give each endpoint 1/n of what it can take.

    Example:
        dispatcher = Dispatcher(store, sender, signing=signing)
        await dispatcher.run(stop)
    """

    def __init__(
        self,
        store: Store,
        sender: Sender,
        *,
        signing: Signing,
        headers: Headers | None = None,
        on_notice: OnNotice | None = None,
        owner: str | None = None,
        lease_s: float = 30.0,
        poll_s: float = 0.25,
        drain_s: float = 10.0,
        batch_max: int = 200,
        held_max: int = 10_000,
        kinds: Kinds = KINDS,
    ) -> None:
        self._root = store
        self._store = store if store.tenant_id is not None else store.privileged()
        self._clock = store.clock
        self._sender, self._headers, self._on_notice, self._kinds = sender, headers, on_notice, kinds
        self.owner = owner or f"{socket.gethostname()}-{os.getpid()}-{ulid()[-6:]}"
        self._lease_s, self._poll_s, self._drain_s = lease_s, poll_s, drain_s
        self._batch_max, self._held_max = batch_max, held_max
        self._lanes = Lanes(self._store, signing, kinds)
        self._settler = Settler(self._store, batch_max=batch_max)
        self._wake = asyncio.Event()
        self._look = True
        self._looked_at = -math.inf
        self._after_lane: str | None = None
        self._endpoints_changed = False
        self._endpoints_at = -math.inf
        self._dues: list[int] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_flight = 0
        self._running = self._stopping = False
        self._last_turn_at: datetime | None = None
        self._counts = {"sent": 0, "delivered": 0, "failed": 0, "dead": 0, "errors": 0}
        self._last_error = ""

    def status(self) -> DispatcherStatus:
        return DispatcherStatus(
            owner=self.owner, running=self._running, last_turn_at=self._last_turn_at,
            buffered=self._lanes.buffered, in_flight=self._in_flight, unsettled=self._settler.unsettled,
            lost=self._settler.lost, last_error=self._last_error, **self._counts,
        )  # fmt: skip

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; then give back what is unsent and finish what is under way."""
        self._running, self._stopping, self._look = True, False, True
        deliveries = self._store.watch(self._kinds.delivery)
        endpoints = self._store.watch(self._kinds.endpoint)
        aside = [
            asyncio.create_task(self._listen(deliveries, self._rung)),
            asyncio.create_task(self._listen(endpoints, self._endpoints_rung)),
            asyncio.create_task(self._until(stop)),
            asyncio.create_task(self._settler.run()),
        ]
        try:
            while not stop.is_set():
                self._wake.clear()
                await self._turn_safely()
                await self._rest()
            await self._wind_down()
        finally:
            self._running = False
            await _end(aside)
            await _end(self._tasks)
            deliveries.close()
            endpoints.close()

    async def drain(self, seconds: float) -> None:
        """Deliver what is due now, for at most `seconds`: for platforms where no process stays up."""
        stop = asyncio.Event()
        running = asyncio.create_task(self.run(stop))
        end = self._clock.monotonic() + seconds
        while self._clock.monotonic() < end and not running.done():
            await self._clock.sleep(0.02)
            if not self._look and not self._busy and self._lanes.refill(self._clock.monotonic()) is None:
                break
        stop.set()
        await running

    @property
    def _busy(self) -> bool:
        return bool(self._in_flight or self._settler.unsettled or self._lanes.buffered)

    async def _listen(self, bell: Wake, heard: Callable[[], None]) -> None:
        while True:
            if await bell.wait(self._poll_s):
                heard()

    async def _until(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stopping = True
        self._wake.set()

    def _rung(self) -> None:
        self._look = True
        self._wake.set()

    def _endpoints_rung(self) -> None:
        self._endpoints_changed = True
        self._wake.set()

    async def _turn_safely(self) -> None:
        """A fault of the store is waited out; the loop goes on."""
        try:
            await self._turn()
        except RetryLaterError as fault:
            self._note(fault)
            await self._clock.sleep(min(fault.after_s, 1.0))
            self._look = True
            self._wake.set()
        except HoldfastError as fault:
            self._note(fault)
            await self._clock.sleep(self._poll_s)
            self._look = True

    def _note(self, fault: HoldfastError) -> None:
        self._counts["errors"] += 1
        self._last_error = f"{fault.code}: {fault.message}"
        _log.warning("a turn failed", code=fault.code, error=fault.message)

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        self._last_turn_at = self._clock.now()
        await self._mind_endpoints(now)
        for lane in list(self._lanes.notable.values()):
            self._pump(lane)
        self._look = self._look or now >= self._looked_at + self._poll_s
        self._due_now()
        self._lanes.forget_idle(now)
        if self._held >= self._held_max:
            return
        if self._look and self._may_look(now):
            self._look, self._looked_at = False, now
            await self._fetch(self._lanes.everywhere(now))
        fetch = self._lanes.refill(self._clock.monotonic())
        if fetch is not None:
            await self._fetch(fetch)
            self._wake.set()

    def _may_look(self, now: float) -> bool:
        return now >= self._looked_at + LOOK_EVERY_S or not self._in_flight

    @property
    def _held(self) -> int:
        return self._in_flight + self._settler.unsettled + self._lanes.buffered

    def _due_now(self) -> None:
        now_us = self._clock.now_us()
        while self._dues and self._dues[0] <= now_us:
            heapq.heappop(self._dues)
            self._look = True

    async def _rest(self) -> None:
        """Until woken, or the next retry, poll or opening lane."""
        now = self._clock.monotonic()
        until = min(
            self._looked_at + self._poll_s,
            self._lanes.wake_at(now),
            self._endpoints_at + ENDPOINTS_BACKSTOP_S,
        )
        if self._dues:
            until = min(until, now + (self._dues[0] - self._clock.now_us()) / 1e6)
        if self._look:
            until = min(until, self._looked_at + LOOK_EVERY_S)
        if self._endpoints_changed:
            until = min(until, self._endpoints_at + ENDPOINTS_EVERY_S)
        if self._wake.is_set() or until <= now:
            await asyncio.sleep(0)
            return
        timer = asyncio.create_task(self._ring_after(until - now))
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _ring_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._wake.set()

    # -- handing over -----------------------------------------------------------------------------

    def reserve(self, endpoint: Endpoint) -> Lane | None:
        """A place for a delivery about to be put out here, so that it needs no claim; None when it must wait.

        Whoever gets a place marks the delivery with `birth_marks` and ends with `accept` or `unreserve`.
        """
        if not self._running or self._stopping or endpoint.fifo:
            return None
        lane = self._lanes.known(endpoint.id)
        if lane is None or lane.more or lane.room(self._clock.monotonic()) < 1:
            return None
        lane.reserved += 1
        return lane

    def mark(self, delivery: Delivery, now: datetime) -> float:
        """Make a new delivery this dispatcher's own; gives when, by the monotonic clock, its lease ends."""
        delivery.status, delivery.owner, delivery.fence = "sending", self.owner, 1
        delivery.next_attempt_at = now + timedelta(seconds=self._lease_s)
        return self._clock.monotonic() + self._lease_s

    def accept(self, lane: Lane, delivery: Delivery, *, until: float) -> None:
        """The delivery is kept: send it as soon as its lane lets it."""
        lane.reserved -= 1
        lane.waiting.append(Held(delivery, until))
        if self._stopping:
            self._give_back(lane)
        else:
            self._pump(lane)

    def unreserve(self, lane: Lane) -> None:
        lane.reserved -= 1

    # -- claiming ---------------------------------------------------------------------------------

    async def _fetch(self, fetch: Fetch) -> None:
        claimed_at = self._clock.monotonic()
        taken = await self._store.claim_due(
            self._kinds.delivery, limit=self._batch_max, lease_s=self._lease_s, owner=self.owner,
            per_lane=fetch.per_lane, after_lane=self._after_lane, skip_lanes=fetch.skip,
            only_lanes=fetch.only,
        )  # fmt: skip
        counts: dict[str, int] = {}
        until = claimed_at + self._lease_s
        for item in taken:
            delivery = item.doc
            counts[delivery.endpoint_id] = counts.get(delivery.endpoint_id, 0) + 1
            self._lanes.get(delivery.endpoint_id).waiting.append(Held(delivery, until))
        cut = len(taken) >= self._batch_max
        self._lanes.fetched(fetch, counts, cut=cut)
        if cut and fetch.only is None:
            self._after_lane = max(counts)
            self._look = True
        await self._start(counts)

    async def _start(self, lane_ids: Iterable[str]) -> None:
        lanes = [self._lanes.get(name) for name in lane_ids]
        unknown = [lane.id for lane in lanes if lane.version < 0]
        if unknown:
            for lane in await self._lanes.load(unknown):
                self._adjust(lane)
        for lane in lanes:
            self._pump(lane)

    async def _mind_endpoints(self, now: float) -> None:
        every = ENDPOINTS_EVERY_S if self._endpoints_changed else ENDPOINTS_BACKSTOP_S
        if now < self._endpoints_at + every:
            return
        self._endpoints_changed, self._endpoints_at = False, now
        for lane in await self._lanes.refresh():
            self._adjust(lane)

    def _adjust(self, lane: Lane) -> None:
        """An endpoint is new or changed: give back what may not go out now, bury what has nowhere to go."""
        if lane.endpoint is None:
            for held in lane.empty():
                self._bury(held)
            lane.more = False
        elif not lane.active or lane.open_at(self._clock.monotonic()) > self._clock.monotonic():
            self._give_back(lane)

    def _bury(self, held: Held) -> None:
        writes = settle(
            held.delivery, Verdict("dead", "the endpoint is gone"), now=self._clock.now(),
            letters=self._kinds.dead_letter,
        )  # fmt: skip
        self._settler.add(Settlement(writes, label=held.delivery.id, until=held.until))

    def _give_back(self, lane: Lane) -> None:
        now = self._clock.now()
        for held in lane.empty():
            self._settler.add(
                Settlement([release(held.delivery, now=now)], label=held.delivery.id, until=held.until)
            )

    # -- sending ----------------------------------------------------------------------------------

    def _pump(self, lane: Lane) -> None:
        """Start as many sends as the lane's limits let through."""
        while lane.waiting and not self._stopping:
            held = lane.take(self._clock.monotonic())
            if held is None:
                return
            self._in_flight += 1
            self._spawn(self._serve(lane, held))

    def _spawn(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, lane: Lane, first: Held) -> None:
        """Send one after another for as long as the lane has something to send."""
        held: Held | None = first
        while held is not None:
            at, started = self._clock.now(), self._clock.monotonic()
            result = await self._send(lane, held.delivery, at)
            ended = self._clock.monotonic()
            attempted(held.delivery, result, at=at, latency_s=ended - started)
            self._conclude(lane, held, result)
            held = None if self._stopping else lane.take(ended)
        self._in_flight -= 1
        if lane.wants_refill(self._clock.monotonic()):
            self._wake.set()

    async def _send(self, lane: Lane, delivery: Delivery, at: datetime) -> Answer | SendFailure:
        endpoint, sign = lane.endpoint, lane.sign
        assert endpoint is not None
        assert sign is not None
        headers = [("content-type", delivery.content_type)]
        headers += sign(delivery.event_id, to_us(at) // 1_000_000, delivery.body)
        if self._headers is not None:
            headers += self._headers(delivery, endpoint)
        timeout_s = min(endpoint.timeout_s, self._lease_s - SETTLE_S)
        request = Outgoing(
            "POST", endpoint.url, tuple(headers), delivery.body, timeout_s, endpoint.response_bytes_max
        )
        self._counts["sent"] += 1
        try:
            return await self._sender.send(request)
        except SendFailure as failure:
            return failure

    def _conclude(self, lane: Lane, held: Held, result: Answer | SendFailure) -> None:
        delivery, endpoint = held.delivery, lane.endpoint
        assert endpoint is not None
        now = self._clock.now()
        verdict = judge(result, endpoint.retry, attempt=delivery.attempt_count, now=now, roll=random.random())
        monotonic = self._clock.monotonic()
        lane.done(held, healthy=verdict.healthy, now=monotonic)
        if verdict.hold_s:
            lane.shut(monotonic + verdict.hold_s)
        self._counts[verdict.status] += 1
        writes = settle(delivery, verdict, now=now, letters=self._kinds.dead_letter)
        if endpoint.fifo and verdict.status != "failed":
            self._spawn(self._leave(delivery, writes, now))
        else:
            self._settler.add(Settlement(writes, label=delivery.id, until=held.until))
        if delivery.next_attempt_at is not None:
            heapq.heappush(self._dues, to_us(delivery.next_attempt_at))
        if verdict.status != "delivered":
            self._after_failure(lane, verdict)

    def _after_failure(self, lane: Lane, verdict: Verdict) -> None:
        assert lane.endpoint is not None
        if verdict.endpoint_gone:
            self._spawn(self._disable(lane.endpoint, verdict.reason))
        now = self._clock.monotonic()
        if lane.waiting and lane.open_at(now) > now:
            self._give_back(lane)
        self._wake.set()

    async def _leave(self, delivery: Delivery, writes: Sequence[object], now: datetime) -> None:
        """Finish the head of an ordered lane; a lost lease means that somebody else will."""
        try:
            await fifo.leave(self._root, delivery, writes, kinds=self._kinds, now=now)  # type: ignore[arg-type]
        except HoldfastError as fault:
            self._note(fault)
        self._rung()

    async def _disable(self, endpoint: Endpoint, reason: str) -> None:
        home = self._root.tenant(endpoint.tenant_id)
        endpoints = Endpoints(home, on_notice=self._on_notice, kinds=self._kinds)
        with contextlib.suppress(HoldfastError):
            await endpoints.disable(endpoint.id, reason=f"the receiver answered {reason}", by=self.owner)

    # -- ending -----------------------------------------------------------------------------------

    async def _wind_down(self) -> None:
        """Give back what is unsent, let sends end, keep their results; all within `drain_s`."""
        for lane in self._lanes.notable.values():
            self._give_back(lane)
        try:
            async with asyncio.timeout(self._drain_s):
                while self._tasks:
                    await asyncio.wait(set(self._tasks))
                await self._settler.settled()
        except TimeoutError:
            _log.warning(
                "stopped with sends under way; their leases end by themselves", count=self._in_flight
            )


async def _end(tasks: Iterable[asyncio.Task[None]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
