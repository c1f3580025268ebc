"""Direct handoff: a dispatcher in the sending process takes over new deliveries without a claim."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import timedelta

from holdfast.clock import Clock
from holdfast.kit.outbox.delivery_worker import DeliveryWorker
from holdfast.kit.outbox.endpoint_queue import ClaimedDelivery, EndpointQueue
from holdfast.kit.outbox.endpoint_queues import EndpointQueues
from holdfast.kit.outbox.models import Delivery, Endpoint

# Deliveries claimed before their commit, each with the queue in which it has a place.
HandoffPlaces = Sequence[tuple[ClaimedDelivery, EndpointQueue]]


class _Room:
    """An endpoint's queue, and how many more deliveries it can take at once."""

    __slots__ = ("places", "queue")

    def __init__(self, queue: EndpointQueue | None, places: int) -> None:
        self.queue, self.places = queue, places


class DirectHandoff:
    """Commits new deliveries as claimed by the dispatcher where it has room; closed while it does not run."""

    def __init__(
        self, queues: EndpointQueues, worker: DeliveryWorker, *, clock: Clock, owner: str, lease_s: float
    ) -> None:
        self._queues, self._worker, self._clock = queues, worker, clock
        self._owner, self._lease_s, self._lease = owner, lease_s, timedelta(seconds=lease_s)
        self._committed: dict[EndpointQueue, None] = {}  # those with deliveries to send
        self.open = False

    async def load(self, endpoints: Sequence[Endpoint]) -> None:
        """Read endpoints that were not seen before, so that their queues can be judged."""
        if not self.has_loaded(endpoints):
            await self._queues.load([one.id for one in endpoints if self._queues.loaded(one.id) is None])

    def has_loaded(self, endpoints: Sequence[Endpoint]) -> bool:
        """Whether there is nothing to read first."""
        if not self.open:
            return True
        loaded = self._queues.loaded
        return None not in [loaded(endpoint.id) for endpoint in endpoints]

    def claim(self, commits: Iterable[Sequence[Delivery]]) -> list[HandoffPlaces]:
        """Claim what there is room for; `end` wants the places of each commit once its outcome is known."""
        now = self._clock.monotonic()
        until_s = now + self._lease_s
        rooms: dict[str, _Room] = {}
        claimed: list[HandoffPlaces] = []
        for deliveries in commits:
            places = []
            for delivery in deliveries:
                room = rooms.get(delivery.endpoint_id)
                if room is None:
                    room = rooms[delivery.endpoint_id] = self._room(delivery.endpoint_id, now)
                if room.queue is not None and room.places > 0 and delivery.state == "pending":
                    room.places -= 1
                    room.queue.reserved += 1
                    places.append((self._claimed(delivery, until_s), room.queue))
            claimed.append(places)
        return claimed

    def _claimed(self, delivery: Delivery, until_s: float) -> ClaimedDelivery:
        delivery.status = delivery.stored_state("sending")
        delivery.owner, delivery.fence = self._owner, 1
        delivery.next_attempt_at = delivery.created_at + self._lease
        return ClaimedDelivery(delivery, until_s)

    def end(self, places: HandoffPlaces, *, committed: bool) -> None:
        """Give back the places of one commit; send what was committed.

        That is in the next iteration of the event loop, with all that the same group commit has committed:
        its other callers then commit again before anything is sent, so that the next group is no smaller.
        """
        for claimed, queue in places:
            queue.reserved -= 1
            if committed:
                queue.waiting.append(claimed)
                if not self._committed:
                    asyncio.get_running_loop().call_soon(self._send_committed)
                self._committed[queue] = None

    def _send_committed(self) -> None:
        queues, self._committed = self._committed, {}
        for queue in queues:
            if self._worker.stopping:
                self._worker.release(queue)
            else:
                self._worker.send_waiting(queue)

    def _room(self, endpoint_id: str, now: float) -> _Room:
        queue = self._queues.loaded(endpoint_id) if self.open and not self._worker.stopping else None
        if queue is None or (places := queue.places(now)) < 1:
            return _Room(None, 0)
        self._queues.busy[queue.id] = queue
        return _Room(queue, places)
