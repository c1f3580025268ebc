"""Claim, sign, send, settle: the loop that empties the outbox, in as many processes as wanted.

bell, due time, poll ──► claim (fair over lanes, leased, fenced)
                             │
              lane ◄─────────┘   concurrency, rate, breaker
                │ courier: sign, send
                ▼
             verdict ──► settler (batches, under the fencing number)
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Final

import msgspec
import structlog

from holdfast.errors import ConfigError, HoldfastError, RetryLaterError
from holdfast.ids import ulid
from holdfast.kit.outbox.delivery_worker import Counts, DeliveryWorker, Headers
from holdfast.kit.outbox.direct_handoff import DirectHandoff
from holdfast.kit.outbox.endpoint_admin import OnNotice
from holdfast.kit.outbox.endpoint_queue import SETTLE_S, ClaimedDelivery, EndpointQueue
from holdfast.kit.outbox.endpoint_queues import EndpointQueues, Fetch, Signing
from holdfast.kit.outbox.models import OUTBOX_MODELS, OutboxModels
from holdfast.kit.outbox.settler import Settler
from holdfast.kit.worker_loop import cancel_all
from holdfast.net import Sender
from holdfast.store import Store, Subscription

# While work is at hand, new deliveries of other lanes are looked for only so often.
LOOK_EVERY_S: Final = 0.01
# An endpoint's change is acted on within this; a store that rings for every commit is asked no oftener.
ENDPOINTS_EVERY_S: Final = 0.2
ENDPOINTS_BACKSTOP_S: Final = 5.0
_log: Final = structlog.get_logger("holdfast.outbox")


class DispatcherStatus(msgspec.Struct, frozen=True):
    """How a dispatcher is doing, for health and metrics; `lost` counts results that came too late."""

    owner: str
    running: bool
    last_turn_at: datetime | None
    buffered: int
    in_flight: int
    unsettled: int
    settled: int
    lost: int
    counts: Counts
    errors: int
    last_error: str


class Dispatcher:
    """Delivers what is due. An endpoint's `timeout_s` is cut to what is left of a lease, of which a
    send gets at least half.

    Limits of an endpoint hold per dispatcher; with n of them, give each endpoint 1/n of what it can take.

    Example:
        dispatcher = Dispatcher(store, sender, signing=EndpointSecrets(vault).signing)
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
        models: OutboxModels = OUTBOX_MODELS,
    ) -> None:
        if lease_s <= SETTLE_S:
            raise ConfigError(f"lease_s must be more than {SETTLE_S}: an answer must be settled inside it")
        self._store = store if store.tenant_id is not None else store.privileged()
        self._clock = store.clock
        self.owner = owner or f"{socket.gethostname()}-{os.getpid()}-{ulid()[-6:]}"
        self._lease_s, self._poll_s, self._drain_s = lease_s, poll_s, drain_s
        self._batch_max, self._held_max, self._models = batch_max, held_max, models
        self._lanes = EndpointQueues(self._store, signing, models=models, lease_s=lease_s)
        self._settler = Settler(self._store, batch_max=batch_max)
        self._wake = asyncio.Event()
        self._courier = DeliveryWorker(
            store, sender, self._settler, owner=self.owner, headers=headers,
            on_notice=on_notice, models=models, wake=self._wake.set, look=self._rung,
        )  # fmt: skip
        self.handoff = DirectHandoff(
            self._lanes, self._courier, clock=self._clock, owner=self.owner, lease_s=lease_s
        )
        self._look = self._turning = False
        self._looked_at = self._endpoints_at = -math.inf
        self._endpoints_changed = False
        self._after_lane: str | None = None
        self._last_turn_at: datetime | None = None
        self._errors, self._last_error = 0, ""

    @property
    def last_turn_at(self) -> datetime | None:
        return self._last_turn_at

    @property
    def under_way(self) -> int:
        """How many deliveries are in this dispatcher's hands."""
        return self._held

    def status(self) -> DispatcherStatus:
        return DispatcherStatus(
            owner=self.owner, running=self.handoff.open, last_turn_at=self._last_turn_at,
            buffered=self._lanes.buffered, in_flight=self._courier.in_flight,
            unsettled=self._settler.unsettled, settled=self._settler.kept, lost=self._settler.lost,
            counts=msgspec.structs.replace(self._courier.counts), errors=self._errors,
            last_error=self._last_error,
        )  # fmt: skip

    # -- the loop ---------------------------------------------------------------------------------

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; then give back what is unsent and finish what is under way."""
        self.handoff.open, self._courier.stopping, self._look = True, False, True
        subscriptions = (self._store.watch(self._models.delivery), self._store.watch(self._models.endpoint))
        aside = {
            asyncio.create_task(self._listen(subscriptions[0], self._rung)),
            asyncio.create_task(self._listen(subscriptions[1], self._endpoints_rung)),
            asyncio.create_task(self._until(stop)),
            asyncio.create_task(self._settler.run()),
        }
        try:
            while not stop.is_set():
                self._wake.clear()
                await self._turn_safely()
                await self._rest()
            await self._wind_down()
        finally:
            self.handoff.open = False
            await cancel_all(aside)
            await self._courier.abandon()
            for subscription in subscriptions:
                subscription.close()

    async def drain(self, seconds: float) -> None:
        """Deliver what is due now, for at most `seconds`: for platforms where no process stays up."""
        stop = asyncio.Event()
        running = asyncio.create_task(self.run(stop))
        end = self._clock.monotonic() + seconds
        await self._clock.sleep(0.02)
        while self._clock.monotonic() < end and not running.done() and not self._idle:
            await self._clock.sleep(0.02)
        stop.set()
        await running

    @property
    def _held(self) -> int:
        return self._courier.in_flight + self._settler.unsettled + self._lanes.buffered

    @property
    def _idle(self) -> bool:
        if self._turning or self._look or self._held:
            return False
        return self._lanes.refill(self._clock.monotonic()) is None

    async def _listen(self, subscription: Subscription, heard: Callable[[], None]) -> None:
        while True:
            if await subscription.wait(self._poll_s):
                heard()

    async def _until(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._courier.stopping = True
        self._wake.set()

    def _rung(self) -> None:
        self._look = True
        self._wake.set()

    def _endpoints_rung(self) -> None:
        self._endpoints_changed = True
        self._wake.set()

    async def _turn_safely(self) -> None:
        """A fault of the store is waited out; the loop goes on."""
        self._turning = True
        try:
            await self._turn()
        except HoldfastError as fault:
            self._errors += 1
            self._last_error = f"{fault.code}: {fault.message}"
            _log.warning("a turn failed", code=fault.code, error=fault.message)
            after_s = fault.after_s if isinstance(fault, RetryLaterError) else self._poll_s
            await self._clock.sleep(min(after_s, 1.0))
            self._look = True
        finally:
            self._turning = False

    async def _turn(self) -> None:
        now = self._clock.monotonic()
        self._last_turn_at = self._clock.now()
        await self._mind_endpoints(now)
        for lane in list(self._lanes.notable.values()):
            self._courier.pump(lane)
        due = self._courier.due_by(self._clock.now_us())
        self._look = self._look or due or now >= self._looked_at + self._poll_s
        self._lanes.forget_idle(now)
        if self._held >= self._held_max:
            return
        if self._look and (now >= self._looked_at + LOOK_EVERY_S or not self._courier.in_flight):
            self._look, self._looked_at = False, now
            await self._fetch(self._lanes.everywhere(now))
        fetch = self._lanes.refill(self._clock.monotonic())
        if fetch is not None:
            await self._fetch(fetch)
            self._wake.set()

    async def _rest(self) -> None:
        """Until woken, or the next retry, poll or opening lane."""
        now = self._clock.monotonic()
        until = min(
            self._looked_at + (LOOK_EVERY_S if self._look else self._poll_s),
            self._endpoints_at + (ENDPOINTS_EVERY_S if self._endpoints_changed else ENDPOINTS_BACKSTOP_S),
            self._lanes.wake_at(now),
        )
        due_us = self._courier.next_due_us()
        if due_us is not None:
            until = min(until, now + (due_us - self._clock.now_us()) / 1e6)
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

    async def _wind_down(self) -> None:
        """Give back what is unsent, let sends end, keep their results; all within `drain_s`."""
        for lane in self._lanes.notable.values():
            self._courier.give_back(lane)
        try:
            async with asyncio.timeout(self._drain_s):
                await self._courier.finished()
                await self._settler.settled()
        except TimeoutError:
            _log.warning("stopped with sends under way; their leases end", count=self._courier.in_flight)

    # -- claiming ---------------------------------------------------------------------------------

    async def _fetch(self, fetch: Fetch) -> None:
        until = self._clock.monotonic() + self._lease_s
        taken = await self._store.claim_due(
            self._models.delivery, limit=self._batch_max, lease_s=self._lease_s, owner=self.owner,
            per_lane=fetch.per_lane, after_lane=self._after_lane, skip_lanes=fetch.skip,
            only_lanes=fetch.only,
        )  # fmt: skip
        counts: dict[str, int] = {}
        for item in taken:
            name = item.doc.endpoint_id
            counts[name] = counts.get(name, 0) + 1
            self._lanes.get(name).waiting.append(ClaimedDelivery(item.doc, until))
        cut = len(taken) >= self._batch_max
        self._lanes.fetched(fetch, counts, cut=cut)
        if cut and fetch.only is None:
            self._after_lane = _last_visited(counts, self._after_lane)
            self._look = True
        await self._start(counts)

    async def _start(self, lane_ids: Iterable[str]) -> None:
        lanes = [self._lanes.get(name) for name in lane_ids]
        unknown = [lane.id for lane in lanes if lane.version < 0]
        if unknown:
            await self._lanes.load(unknown)
        for lane in lanes:
            self._adjust(lane)
            self._courier.pump(lane)

    async def _mind_endpoints(self, now: float) -> None:
        every = ENDPOINTS_EVERY_S if self._endpoints_changed else ENDPOINTS_BACKSTOP_S
        if now < self._endpoints_at + every:
            return
        self._endpoints_changed, self._endpoints_at = False, now
        for lane in await self._lanes.refresh():
            self._adjust(lane)

    def _adjust(self, lane: EndpointQueue) -> None:
        """Give back what may not go out now, bury what has nowhere to go."""
        if not lane.waiting:
            return
        if lane.endpoint is None:
            self._courier.bury(lane)
            self._lanes.forget(lane)
        elif lane.open_at(self._clock.monotonic()) > self._clock.monotonic():
            self._courier.give_back(lane)


def _last_visited(lane_ids: Iterable[str], after: str | None) -> str:
    """Lanes are visited in order from `after` on and then from the start: the last of those that gave."""
    names = sorted(lane_ids)
    wrapped = [name for name in names if after is not None and name <= after]
    return (wrapped or names)[-1]
