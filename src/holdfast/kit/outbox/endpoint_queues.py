"""All endpoints' queues of one dispatcher: for whom to claim next, and what their endpoints say now."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec
import structlog

from holdfast.errors import HoldfastError
from holdfast.kit.outbox.endpoint_queue import EndpointQueue
from holdfast.kit.outbox.models import Endpoint, OutboxModels
from holdfast.kit.outbox.signing import Sign
from holdfast.store import Snapshot, Store

# Opens an endpoint's secrets and gives what signs with them; called again when the endpoint changes.
Signing = Callable[[Endpoint], Awaitable[Sign]]

# What a claim over all endpoints takes for one at most: enough to start with, little enough to share.
PER_ENDPOINT: Final = 32
# An endpoint that takes more than this would be claimed for twice: its share, and then the rest. Not where
# its deliveries are handed over in this process, which leaves little to claim.
BRISK_PER_S: Final = 2_000.0
QUEUES_MAX: Final = 20_000
QUEUES_REFRESHED_MAX: Final = 2_000
UNUSABLE_S: Final = 30.0
_log: Final = structlog.get_logger("holdfast.outbox")


class ClaimScope(msgspec.Struct, frozen=True):
    """For whom to claim: all endpoints but some, or some only, and how many for each."""

    per_endpoint: int
    skip: frozenset[str] = frozenset()
    only: frozenset[str] | None = None


class EndpointQueues:
    """A queue for each endpoint seen. Idle, open queues cost a turn nothing; the others are `busy`."""

    def __init__(self, store: Store, signing: Signing, *, models: OutboxModels, lease_s: float) -> None:
        self._store, self._signing, self._models, self._lease_s = store, signing, models, lease_s
        self._queues: dict[str, EndpointQueue] = {}
        self.busy: dict[str, EndpointQueue] = {}

    def get(self, endpoint_id: str) -> EndpointQueue:
        queue = self._queues.get(endpoint_id)
        if queue is None:
            queue = self._queues[endpoint_id] = EndpointQueue(endpoint_id, lease_s=self._lease_s)
        self.busy[endpoint_id] = queue
        return queue

    def loaded(self, endpoint_id: str) -> EndpointQueue | None:
        """Return a queue whose endpoint has been read."""
        queue = self._queues.get(endpoint_id)
        return None if queue is None or queue.version < 0 else queue

    def forget(self, queue: EndpointQueue) -> None:
        self._queues.pop(queue.id, None)
        self.busy.pop(queue.id, None)

    def forget_idle(self, now: float) -> None:
        """Stop looking after queues that hold nothing and could take a whole share at once."""
        idle = [
            queue
            for queue in self.busy.values()
            if not (queue.held or queue.may_have_more)
            and queue.active
            and queue.room(now) * 4 >= PER_ENDPOINT
        ]
        for queue in idle:
            del self.busy[queue.id]
        if len(self._queues) > QUEUES_MAX:
            self._queues = dict(self.busy)

    def wake_at(self, now: float) -> float:
        return min((queue.wake_at(now) for queue in self.busy.values()), default=math.inf)

    @property
    def buffered(self) -> int:
        return sum(len(queue.waiting) for queue in self.busy.values())

    # -- what to claim ----------------------------------------------------------------------------

    def all_with_room(self, now: float) -> ClaimScope:
        """Over all endpoints; those with little room, a high rate or known to have more are claimed for by
        themselves."""
        skip = []
        for queue in self.busy.values():
            if queue.has_more or queue.room(now) * 4 < PER_ENDPOINT:
                queue.has_more = True
                skip.append(queue.id)
            elif queue.pace_per_s > BRISK_PER_S and not queue.reserved:
                queue.left_out = True
                skip.append(queue.id)
        return ClaimScope(PER_ENDPOINT, frozenset(skip))

    def refill(self, now: float) -> ClaimScope | None:
        """For endpoints that were left out or are known to have more, those of like room together; None when
        no queue wants any."""
        rooms = {queue.id: queue.room(now) for queue in self.busy.values() if queue.wants_refill(now)}
        if not rooms:
            return None
        most = max(rooms.values())
        return ClaimScope(most, only=frozenset(name for name, room in rooms.items() if room * 4 >= most))

    def record_claim(self, scope: ClaimScope, counts: dict[str, int], *, cut: bool) -> None:
        """Learn from a claim: an endpoint that gave all it was asked for may have more.

        So may each that was asked by name, where the claim was `cut` short by the size of a batch.
        """
        cut_short = cut and scope.only is not None
        for endpoint_id in scope.only or counts:
            queue = self.get(endpoint_id)
            queue.has_more = cut_short or counts.get(endpoint_id, 0) >= scope.per_endpoint
            queue.left_out = False

    # -- endpoints --------------------------------------------------------------------------------

    async def load(self, endpoint_ids: Iterable[str]) -> list[EndpointQueue]:
        """Bring these queues up to date with their endpoints; return those that changed."""
        names = list(endpoint_ids)
        changed = []
        for name, snapshot in zip(
            names, await self._store.get_many(self._models.endpoint, names), strict=True
        ):
            queue = self._queues.get(name) or self.get(name)
            if snapshot is None:
                queue.forget_endpoint()
                changed.append(queue)
            elif snapshot.version != queue.version:
                await self._configure(queue, snapshot)
                changed.append(queue)
        return changed

    async def refresh(self) -> list[EndpointQueue]:
        """Read the endpoints again; of very many, the idle ones only when they are next needed."""
        if len(self._queues) > QUEUES_REFRESHED_MAX:
            self._queues = dict(self.busy)
        return await self.load(list(self._queues))

    async def _configure(self, queue: EndpointQueue, snapshot: Snapshot[Endpoint]) -> None:
        now, was_active = self._store.clock.monotonic(), queue.active
        try:
            sign = await self._signing(snapshot.doc)
        except HoldfastError as fault:
            # Without its secrets nothing may go out; an operator repairs it, so look again now and then.
            _log.error("an endpoint's secrets can't be read", endpoint=queue.id, code=fault.code)
            queue.configure(snapshot.doc, -1, sign=_refuse)
            queue.close_until(now + UNUSABLE_S)
            queue.has_more = True
            return
        queue.configure(snapshot.doc, snapshot.version, sign=sign)
        if queue.active and not was_active:
            queue.has_more = True


def _refuse(message_id: str, at_s: int, body: bytes) -> list[tuple[str, str]]:
    raise AssertionError("a queue that can't sign must not send")
