"""Taking over new deliveries in the process that puts them out: born claimed, they need no claim."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from holdfast.clock import Clock
from holdfast.kit.outbox.delivery_worker import DeliveryWorker
from holdfast.kit.outbox.endpoint_queue import ClaimedDelivery, EndpointQueue
from holdfast.kit.outbox.endpoint_queues import EndpointQueues
from holdfast.kit.outbox.models import Delivery, Endpoint


class DirectHandoff:
    """A dispatcher's door for the outbox beside it; shut while the dispatcher is not at work.

    Whoever gets a place by `reserve` marks the delivery, commits it, and ends with `accept` or `unreserve`.
    """

    def __init__(
        self, lanes: EndpointQueues, courier: DeliveryWorker, *, clock: Clock, owner: str, lease_s: float
    ) -> None:
        self._lanes, self._courier, self._clock = lanes, courier, clock
        self._owner, self._lease_s = owner, lease_s
        self.open = False

    def unknown(self, endpoints: Iterable[Endpoint]) -> list[str]:
        """The ids of those whose lanes can't be judged yet."""
        if not self.open:
            return []
        return [endpoint.id for endpoint in endpoints if self._lanes.known(endpoint.id) is None]

    async def learn(self, endpoint_ids: Iterable[str]) -> None:
        """Look at endpoints for the first time, so that `reserve` can judge their lanes."""
        await self._lanes.load(endpoint_ids)

    def reserve(self, endpoint: Endpoint) -> EndpointQueue | None:
        """A place for a delivery about to be put out; None when it must wait in the store like the others."""
        if not self.open or self._courier.stopping or endpoint.fifo:
            return None
        lane = self._lanes.known(endpoint.id)
        if lane is None or lane.more or lane.room(self._clock.monotonic()) < 1:
            return None
        lane.reserved += 1
        self._lanes.mind(lane)
        return lane

    def mark(self, delivery: Delivery, now: datetime) -> float:
        """Make a new delivery this dispatcher's own; gives when, by the monotonic clock, its lease ends."""
        delivery.status, delivery.owner, delivery.fence = "sending", self._owner, 1
        delivery.next_attempt_at = now + timedelta(seconds=self._lease_s)
        return self._clock.monotonic() + self._lease_s

    def accept(self, lane: EndpointQueue, delivery: Delivery, *, until: float) -> None:
        """The delivery is kept: send it as soon as its lane lets it."""
        lane.reserved -= 1
        lane.waiting.append(ClaimedDelivery(delivery, until))
        if self._courier.stopping:
            self._courier.give_back(lane)
        else:
            self._courier.pump(lane)

    def unreserve(self, lane: EndpointQueue) -> None:
        """The delivery was not kept."""
        lane.reserved -= 1
