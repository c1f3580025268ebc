"""All lanes of one dispatcher: who may be fetched for, in which claim, and what their endpoints say now."""

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

# Opens an endpoint's secrets and gives what signs with them; asked again when the endpoint changes.
Signing = Callable[[Endpoint], Awaitable[Sign]]

# What a claim over all lanes takes from one at most: enough to start with, little enough to share.
PER_LANE: Final = 32
LANES_KEPT_MAX: Final = 20_000
LANES_REFRESHED_MAX: Final = 2_000
UNUSABLE_S: Final = 30.0
_log: Final = structlog.get_logger("holdfast.outbox")


class Fetch(msgspec.Struct, frozen=True):
    """How to claim: over all lanes but some, or for some only."""

    per_lane: int
    skip: frozenset[str] = frozenset()
    only: frozenset[str] | None = None


class EndpointQueues:
    """Keeps a lane per endpoint seen. Idle, open lanes cost a turn nothing; the others are `notable`."""

    def __init__(self, store: Store, signing: Signing, *, models: OutboxModels, lease_s: float) -> None:
        self._store, self._signing, self._models, self._lease_s = store, signing, models, lease_s
        self._lanes: dict[str, EndpointQueue] = {}
        self.notable: dict[str, EndpointQueue] = {}

    def get(self, lane_id: str) -> EndpointQueue:
        lane = self._lanes.get(lane_id)
        if lane is None:
            lane = self._lanes[lane_id] = EndpointQueue(lane_id, lease_s=self._lease_s)
        self.notable[lane_id] = lane
        return lane

    def known(self, lane_id: str) -> EndpointQueue | None:
        """A lane whose endpoint has been looked at."""
        lane = self._lanes.get(lane_id)
        if lane is None or lane.version < 0:
            return None
        return lane

    def mind(self, lane: EndpointQueue) -> None:
        self.notable[lane.id] = lane

    def forget_idle(self, now: float) -> None:
        """Stop minding lanes that hold nothing and could take a whole share at once."""
        idle = [
            lane
            for lane in self.notable.values()
            if not lane.held and not lane.more and lane.active and lane.room(now) * 4 >= PER_LANE
        ]
        for lane in idle:
            del self.notable[lane.id]
        if len(self._lanes) > LANES_KEPT_MAX:
            self._lanes = dict(self.notable)

    # -- what to claim ----------------------------------------------------------------------------

    def everywhere(self, now: float) -> Fetch:
        """Over all lanes; those with little room or known to have more are fetched for by themselves."""
        skip = []
        for lane in self.notable.values():
            if lane.more or lane.room(now) * 4 < PER_LANE:
                lane.more = True
                skip.append(lane.id)
        return Fetch(PER_LANE, frozenset(skip))

    def refill(self, now: float) -> Fetch | None:
        """For lanes known to have more, those of like room together; None when no lane wants any."""
        rooms = {lane.id: lane.room(now) for lane in self.notable.values() if lane.wants_refill(now)}
        if not rooms:
            return None
        most = max(rooms.values())
        return Fetch(most, only=frozenset(name for name, room in rooms.items() if room * 4 >= most))

    def fetched(self, fetch: Fetch, counts: dict[str, int], *, cut: bool) -> None:
        """Learn from a claim: a lane that gave all it was asked for may have more."""
        for lane_id in fetch.only or counts:
            lane = self.get(lane_id)
            lane.more = counts.get(lane_id, 0) >= fetch.per_lane or (cut and lane_id not in counts)

    # -- what their endpoints say -----------------------------------------------------------------

    async def load(self, lane_ids: Iterable[str]) -> list[EndpointQueue]:
        """Bring these lanes to what their endpoints say now; gives those that changed."""
        names = list(lane_ids)
        found = await self._store.get_many(self._models.endpoint, names)
        changed = []
        for name, snapshot in zip(names, found, strict=True):
            lane = self._lanes.get(name) or self.get(name)
            if snapshot is None:
                lane.endpoint, lane.version = None, -1
                changed.append(lane)
            elif snapshot.version != lane.version:
                await self._set_up(lane, snapshot)
                changed.append(lane)
        return changed

    async def refresh(self) -> list[EndpointQueue]:
        """Look at the endpoints again; of very many, the idle ones only when they are next needed."""
        if len(self._lanes) > LANES_REFRESHED_MAX:
            self._lanes = dict(self.notable)
        return await self.load(list(self._lanes))

    def forget(self, lane: EndpointQueue) -> None:
        self._lanes.pop(lane.id, None)
        self.notable.pop(lane.id, None)

    async def _set_up(self, lane: EndpointQueue, snapshot: Snapshot[Endpoint]) -> None:
        now = self._store.clock.monotonic()
        was_active = lane.active
        try:
            sign = await self._signing(snapshot.doc)
        except HoldfastError as fault:
            # Without its secrets nothing may go out; an operator repairs it, so look again now and then.
            _log.error("an endpoint's secrets can't be read", endpoint=lane.id, code=fault.code)
            lane.endpoint, lane.version = snapshot.doc, -1
            lane.set_up(snapshot.doc, -1, sign=_refuse, now=now)
            lane.shut(now + UNUSABLE_S)
            lane.more = True
            return
        lane.set_up(snapshot.doc, snapshot.version, sign=sign, now=now)
        if lane.active and not was_active:
            lane.more = True

    def wake_at(self, now: float) -> float:
        """When the next lane is worth looking at again."""
        return min((lane.wake_at(now) for lane in self.notable.values()), default=math.inf)

    @property
    def buffered(self) -> int:
        return sum(len(lane.waiting) for lane in self.notable.values())


def _refuse(message_id: str, at_s: int, body: bytes) -> list[tuple[str, str]]:
    raise AssertionError("a lane that can't sign must not send")
