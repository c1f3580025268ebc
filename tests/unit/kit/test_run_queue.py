"""How many runs of a workflow and of a tenant one process may hold."""

from __future__ import annotations

import pytest

from holdfast.errors import DeclarationError
from holdfast.kit.runs import KIT, Workflow
from holdfast.kit.runs.run_queue import RunQueue, room_for


def _queues(*held: int, concurrency: int | None = None) -> list[RunQueue]:
    queues = [RunQueue(Workflow(f"w{n}", concurrency=concurrency), KIT, ()) for n in range(len(held))]
    for queue, count in zip(queues, held, strict=True):
        queue.take([f"{queue.lane_prefix}acme"] * count)
    return queues


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        ((0,), [200]),
        ((150,), [50]),
        ((0, 0), [150, 150]),
        ((150, 0), [0, 50]),
        ((150, 50), [0, 0]),
        ((100, 100), [0, 0]),
        ((0, 0, 0, 0), [125, 125, 125, 125]),
        ((125, 0, 0, 0), [0, 25, 25, 25]),
    ],
)
def test_each_workflow_is_guaranteed_its_share_and_may_take_what_nobody_else_is(
    held: tuple[int, ...], expected: list[int]
) -> None:
    queues = _queues(*held)
    assert [room_for(one, queues, concurrency=200) for one in queues] == expected


def test_more_workflows_than_slots_still_get_one_each_in_turn() -> None:
    queues = _queues(0, 0, 0, 0, 0)
    assert [room_for(one, queues, concurrency=2) for one in queues] == [1] * 5
    queues[0].take(["w0:acme"])
    queues[1].take(["w1:acme"])
    assert [room_for(one, queues, concurrency=2) for one in queues] == [0] * 5


def test_a_workflow_never_passes_its_own_limit() -> None:
    (queue,) = _queues(3, concurrency=4)
    assert room_for(queue, [queue], concurrency=200) == 1


def test_a_tenant_can_take_all_slots_but_a_reserve_for_others() -> None:
    (queue,) = _queues(0)
    lane = f"{queue.lane_prefix}acme"
    queue.take([lane] * 193)
    assert queue.full_lanes(7) == []
    queue.take([lane])
    assert queue.full_lanes(6) == [lane]
    queue.give_back(lane)
    assert queue.full_lanes(7) == []


def test_the_next_claim_goes_on_after_the_last_lane_and_then_round() -> None:
    (queue,) = _queues(0)
    for taken, after in ((["w0:b", "w0:c"], "w0:c"), (["w0:d", "w0:a"], "w0:a"), ([], "w0:a")):
        queue.take(taken)
        assert queue.after_lane == after


def test_a_name_that_would_mix_lanes_is_refused() -> None:
    with pytest.raises(DeclarationError, match="no ':'"):
        Workflow("a:b")
