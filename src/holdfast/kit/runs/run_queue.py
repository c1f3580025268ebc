"""The due runs of each workflow, and how many of them one process may hold: pure rules of fairness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Final

from holdfast.kit.runs.models import RunModels, lane_of
from holdfast.kit.runs.transitions import Join
from holdfast.kit.runs.workflow import Workflow
from holdfast.kit.worker_loop import last_lane

# The part of a process's slots that is divided among its workflows; the rest goes to whoever comes first.
GUARANTEED: Final = 0.5
# One slot in so many is out of reach for a tenant that holds all the others.
TENANT_RESERVE: Final = 32


class RunQueue:
    """The runs of one workflow in one collection."""

    def __init__(self, workflow: Workflow, models: RunModels, joins: Sequence[Join]) -> None:
        self.workflow, self.models, self.joins = workflow, models, tuple(joins)
        self.lane_prefix = lane_of(workflow.name, "")
        self.after_lane: str | None = None
        self.held: Counter[str] = Counter()
        self.claimed = self.settled = self.lost = self.faults = 0

    @property
    def under_way(self) -> int:
        return self.held.total()

    def take(self, lanes: Sequence[str]) -> None:
        """Count what was claimed; the next claim goes on after the last lane."""
        self.claimed += len(lanes)
        self.held.update(lanes)
        self.after_lane = last_lane(lanes, after=self.after_lane)

    def give_back(self, lane: str) -> None:
        self.held[lane] -= 1
        if not self.held[lane]:
            del self.held[lane]

    def full_lanes(self, room: int) -> list[str]:
        """The tenants that hold all but a reserve of what other tenants leave to them."""
        total = self.under_way + room
        return [lane for lane, held in self.held.items() if held >= _limit(total - self.under_way + held)]


def _limit(slots: int) -> int:
    return slots - slots // TENANT_RESERVE


def room_for(queue: RunQueue, queues: Collection[RunQueue], *, concurrency: int) -> int:
    """How many more runs of this workflow the process may hold.

    Each workflow is guaranteed an equal share of half the slots, whatever the others hold.
    """
    guaranteed = max(1, int(concurrency * GUARANTEED) // len(queues))
    shared = concurrency - sum(max(one.under_way, guaranteed) for one in queues)
    room = max(0, guaranteed - queue.under_way) + max(0, shared)
    free = concurrency - sum(one.under_way for one in queues)
    own = concurrency if queue.workflow.concurrency is None else queue.workflow.concurrency
    return max(0, min(room, free, own - queue.under_way))
