"""The dispatcher: claims due deliveries and sends them, in as many processes as wanted.

notification, due time, poll ──► claim (fair over endpoints, leased, fenced)
                                   │
                endpoint's queue ◄─┘   concurrency, rate limit, circuit breaker
                       │ delivery worker: sign, send, judge
                       ▼
                    settler (batches, under the fencing number)
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
import structlog

from holdfast.errors import ConfigError, HoldfastError
from holdfast.kit.outbox.delivery_worker import Counts, DeliveryWorker, Headers
from holdfast.kit.outbox.direct_handoff import DirectHandoff
from holdfast.kit.outbox.endpoint_admin import OnNotice
from holdfast.kit.outbox.endpoint_queue import SETTLE_S, ClaimedDelivery, EndpointQueue
from holdfast.kit.outbox.endpoint_queues import ClaimScope, EndpointQueues, Signing
from holdfast.kit.outbox.models import OUTBOX_MODELS, Delivery, OutboxModels
from holdfast.kit.outbox.settler import Settler
from holdfast.kit.worker_loop import WorkerLoop, cancel_all
from holdfast.model import Document
from holdfast.net import ConnectionShares, Sender
from holdfast.store import Store, Subscription

# While this many sends are in flight, what is new is claimed only so often: many at once cost little more
# than one. With fewer in flight, the wait is shorter in proportion.
CLAIM_EVERY_S: Final = 0.01
BUSY_IN_FLIGHT: Final = 16
# An endpoint's change takes effect within this; a store that notifies of every commit is read no oftener.
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


class Dispatcher(WorkerLoop[Delivery]):
    """Delivers what is due. An endpoint's `timeout_s` is cut to what is left of a lease, of which a
    send gets at least half.

    An endpoint's rate holds for all dispatchers on the store together, its concurrency and breaker for each.
    Dispatchers with one sender share its `shares`. Each has at most `held_max` deliveries in memory.

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
        shares: ConnectionShares | None = None,
        headers: Headers | None = None,
        on_notice: OnNotice | None = None,
        owner: str = "",
        lease_s: float = 30.0,
        poll_s: float = 0.25,
        drain_s: float = 10.0,
        batch_max: int = 200,
        held_max: int = 10_000,
        models: OutboxModels = OUTBOX_MODELS,
    ) -> None:
        if lease_s <= SETTLE_S:
            raise ConfigError(f"lease_s must be more than {SETTLE_S}: an answer must be settled inside it")
        super().__init__(
            store if store.tenant_id is not None else store.privileged(), models.delivery,
            concurrency=held_max, lease_s=lease_s, poll_s=poll_s, owner=owner,
        )  # fmt: skip
        self._drain_s, self._batch_max, self._models = drain_s, batch_max, models
        self._queues = EndpointQueues(self._store, signing, models=models, lease_s=lease_s)
        self._settler = Settler(self._store, batch_max=batch_max)
        self._worker = DeliveryWorker(
            store, sender, self._settler, shares=shares or ConnectionShares(), owner=self.owner,
            headers=headers, on_notice=on_notice, models=models, spawn=self._spawn, wake=self._wake.set,
            look=self._deliveries_changed, note=self._note,
        )  # fmt: skip
        self.handoff = DirectHandoff(
            self._queues, self._worker, clock=self._clock, owner=self.owner, lease_s=lease_s
        )
        self._claim_wanted = self._stepping = self._endpoints_stale = False
        self._claimed_at = self._endpoints_at = -math.inf
        self._after_endpoint: str | None = None

    @property
    def under_way(self) -> int:
        """How many deliveries this dispatcher holds."""
        return self._worker.in_flight + self._settler.unsettled + self._queues.buffered

    def status(self) -> DispatcherStatus:
        return DispatcherStatus(
            owner=self.owner, running=self.handoff.open, last_turn_at=self.last_turn_at,
            buffered=self._queues.buffered, in_flight=self._worker.in_flight,
            unsettled=self._settler.unsettled, settled=self._settler.settled, lost=self._settler.lost,
            counts=msgspec.structs.replace(self._worker.counts), errors=self.errors,
            last_error=self.last_error,
        )  # fmt: skip

    async def run(self, stop: asyncio.Event) -> None:
        """Deliver until `stop` is set; then release what is unsent and finish what is in flight."""
        self.handoff.open, self._worker.stopping, self._claim_wanted = True, False, True
        settling = asyncio.create_task(self._settler.run())
        try:
            await super().run(stop)
        finally:
            self.handoff.open = False
            self._worker.abandon()
            await cancel_all([settling])

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
    def _idle(self) -> bool:
        if self._stepping or self._claim_wanted or self.under_way:
            return False
        return self._queues.refill(self._clock.monotonic()) is None

    # -- the loop's hooks -------------------------------------------------------------------------

    def _subscribed(self) -> Mapping[type[Document], Callable[[], None]]:
        return {
            self._models.delivery: self._deliveries_changed,
            self._models.endpoint: self._endpoints_changed,
        }

    def _watch(self, kind: type[Document]) -> Subscription:
        # What it hands over, settles and retries itself needs no claim that finds nothing.
        return self._store.watch(kind, claims=kind is self._models.delivery)

    def _deliveries_changed(self) -> None:
        # Where a claim is wanted already, the loop waits no longer than until it may be made.
        if not self._claim_wanted:
            self._claim_wanted = True
            self._wake.set()

    def _endpoints_changed(self) -> None:
        self._endpoints_stale = True
        self._wake.set()

    async def _wake_on(self, stop: asyncio.Event) -> None:
        await super()._wake_on(stop)
        self._worker.stopping = True

    async def _step(self) -> float:
        self._stepping = True
        try:
            await self._claim_and_send()
        except HoldfastError:
            self._claim_wanted = True
            raise
        finally:
            self._stepping = False
        return self._idle_s()

    async def _claim_and_send(self) -> None:
        now = self._clock.monotonic()
        await self._refresh_endpoints(now)
        for queue in list(self._queues.busy.values()):
            self._worker.send_waiting(queue)
        retries = self._worker.pop_due_retries(self._clock.now_us())
        self._claim_wanted = self._claim_wanted or retries or now >= self._claimed_at + self._poll_s
        self._queues.forget_idle(now)
        if self.under_way >= self._concurrency:
            return
        if self._claim_wanted and now >= self._claimed_at + self._claim_every_s:
            self._claim_wanted, self._claimed_at = False, now
            await self._fetch(self._queues.all_with_room(now))
        scope = self._queues.refill(self._clock.monotonic())
        if scope is not None:
            await self._fetch(scope)
            self._wake.set()

    def _idle_s(self) -> float:
        """Return the seconds until the next retry, poll or queue that opens."""
        now = self._clock.monotonic()
        claim_at = self._claimed_at + (self._claim_every_s if self._claim_wanted else self._poll_s)
        if self.under_way >= self._concurrency:
            claim_at = now + CLAIM_EVERY_S  # whatever is due has to wait until something ends
        until = min(claim_at, self._endpoints_at + self._endpoints_every_s, self._queues.wake_at(now))
        retry_us = self._worker.next_retry_us()
        if retry_us is not None:
            until = min(until, now + (retry_us - self._clock.now_us()) / 1e6)
        return until - now

    async def _wind_down(self) -> None:
        """Release what is unsent, let sends end and settle their results; all within `drain_s`."""
        for queue in self._queues.busy.values():
            self._worker.release(queue)
        try:
            async with asyncio.timeout(self._drain_s):
                while self._tasks or self._worker.in_flight:
                    await self._worker.wait_idle()
                    if self._tasks:
                        await asyncio.wait(set(self._tasks))
                await self._settler.flush()
        except TimeoutError:
            _log.warning("stopped with sends in flight; their leases end", count=self._worker.in_flight)

    # -- claiming ---------------------------------------------------------------------------------

    async def _fetch(self, scope: ClaimScope) -> None:
        limit = min(self._batch_max, self._concurrency - self.under_way)
        if limit < 1:
            return
        until_s = self._clock.monotonic() + self._lease_s
        claimed = await self._store.claim_due(
            self._models.delivery, limit=limit, lease_s=self._lease_s, owner=self.owner,
            per_lane=scope.per_endpoint, after_lane=self._after_endpoint, skip_lanes=scope.skip,
            only_lanes=scope.only,
        )  # fmt: skip
        counts: dict[str, int] = {}
        for snapshot in claimed:
            name = snapshot.doc.endpoint_id
            counts[name] = counts.get(name, 0) + 1
            self._queues.get(name).waiting.append(ClaimedDelivery(snapshot.doc, until_s))
        cut = len(claimed) >= limit
        self._queues.record_claim(scope, counts, cut=cut)
        if cut and scope.only is None:
            self._after_endpoint = _last_visited(counts, self._after_endpoint)
            self._claim_wanted = True
        await self._send_claimed(counts)

    async def _send_claimed(self, endpoint_ids: Iterable[str]) -> None:
        queues = [self._queues.get(name) for name in endpoint_ids]
        unknown = [queue.id for queue in queues if queue.version < 0]
        if unknown:
            await self._queues.load(unknown)
        for queue in queues:
            self._settle_unsendable(queue)
            self._worker.send_waiting(queue)

    @property
    def _claim_every_s(self) -> float:
        return CLAIM_EVERY_S * min(1.0, self._worker.in_flight / BUSY_IN_FLIGHT)

    @property
    def _endpoints_every_s(self) -> float:
        return ENDPOINTS_EVERY_S if self._endpoints_stale else ENDPOINTS_BACKSTOP_S

    async def _refresh_endpoints(self, now: float) -> None:
        if now < self._endpoints_at + self._endpoints_every_s:
            return
        self._endpoints_stale, self._endpoints_at = False, now
        for queue in await self._queues.refresh():
            self._settle_unsendable(queue)

    def _settle_unsendable(self, queue: EndpointQueue) -> None:
        """Release what may not go out now, give up what has nowhere to go."""
        if not queue.waiting:
            return
        now = self._clock.monotonic()
        if queue.endpoint is None:
            self._worker.bury(queue)
            self._queues.forget(queue)
        elif queue.open_at(now) > now:
            self._worker.release(queue)


def _last_visited(endpoint_ids: Iterable[str], after: str | None) -> str:
    """Endpoints are visited in order from `after` on and then from the start: the last of those that gave."""
    names = sorted(endpoint_ids)
    wrapped = [name for name in names if after is not None and name <= after]
    return (wrapped or names)[-1]
