"""An endpoint's rate holds over all processes together, also when one of them dies."""

from __future__ import annotations

import asyncio
import math

import pytest

from holdfast.app import open_store
from holdfast.kit.outbox import Rate
from holdfast.kit.outbox.shared_rate import ReservedTurns, quota_of
from holdfast.kit.rate_limit import RateQuota
from tests.faults.controlled_process import ControlledProcess, run_processes
from tests.kit.outbox_fixture import endpoint_at, receiving, send, state_is
from tests.kit.outbox_rate_worker import DOCUMENTS
from tests.kit.test_rate_limit import most_in_a_period

PROCESSES, EVENTS, KILLED_AFTER, PER_S = 4, 90, 60, 30


@pytest.mark.parametrize(
    ("rate", "quota"),
    [
        (Rate(per_s=20), RateQuota(count=20, period_s=1.0)),
        (Rate(per_s=0.2), RateQuota(count=1, period_s=5.0)),
        (Rate(per_s=2.5, burst=3), RateQuota(count=4, period_s=0.8, burst=3)),
    ],
)
def test_a_rate_is_a_quota_with_the_same_pace(rate: Rate, quota: RateQuota) -> None:
    assert quota_of(rate) == quota
    assert quota.interval_us == pytest.approx(1e6 / rate.per_s / 0.97, rel=1e-4)


def test_a_turn_is_taken_at_its_time_or_forfeited() -> None:
    turns = ReservedTurns(Rate(per_s=10))
    assert (turns.take(0.0), turns.ready_at()) == (False, math.inf)
    turns.add([1.0, 1.1, 1.2])
    assert [turns.take(0.9), turns.take(1.02), turns.take(1.03)] == [False, True, False]
    # A period later than its time by more than the spare part of it.
    assert turns.take(1.19) is False
    assert (turns.ready_at(), turns.take(1.22)) == (1.2, True)


def test_as_many_turns_are_reserved_as_can_be_used() -> None:
    turns = ReservedTurns(Rate(per_s=20))

    def wanted(waiting: int, *, places: int = 2, took_s: float = 0.01) -> int:
        return turns.wanted(waiting, places=places, concurrency=4, took_s=took_s)

    assert [wanted(1), wanted(5), wanted(500)] == [1, 5, 10]
    # Four at once that take a second each can't use twenty a second.
    assert wanted(500, took_s=1.0) == 2
    turns.add([1.0] * 6)
    assert wanted(500) == 0
    turns.take(1.0)
    assert wanted(500) == 5
    turns.reserving = True
    assert wanted(500) == 0


async def _report(worker: ControlledProcess, heard: list[str]) -> None:
    """Note what a process says until it ends."""
    while True:
        try:
            line = await worker.hear()
        except RuntimeError:
            return
        heard.append(line)
        if line == "stopped":
            return


def _times(heard: list[str], what: str) -> list[int]:
    return sorted(int(line.split()[1]) for line in heard if line.startswith(what))


@pytest.mark.parametrize("url", ["sqlite_url", "postgres_url"])
async def test_four_processes_keep_to_one_rate_use_it_up_and_survive_a_kill(
    url: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(url)
    store = await open_store(address, DOCUMENTS)
    await store.migrate()
    heard: list[str] = []
    async with receiving() as receiver:
        endpoint = await endpoint_at(store, receiver.url(), rate=Rate(per_s=PER_S), concurrency=10)
        await send(store, endpoint, *(f"evt-{n}" for n in range(EVENTS)))
        orders = [{"url": address}] * PROCESSES
        async with run_processes("tests.kit.outbox_rate_worker", "dispatch", *orders) as workers:
            for worker in workers:
                assert await worker.hear() == "ready"
            reports = [asyncio.create_task(_report(worker, heard)) for worker in workers]
            for worker in workers:
                worker.say("go")
            async with asyncio.timeout(60):
                await receiver.received(KILLED_AFTER)
            granted = _times(heard, "granted")[:KILLED_AFTER]
            await workers[0].kill()
            for n in range(EVENTS):
                await state_is(store, f"evt-{n}", "delivered", within_s=60)
            for worker in workers[1:]:
                worker.say("stop")
            async with asyncio.timeout(60):
                await asyncio.gather(*reports)
    await store.close()
    taken = _times(heard, "taken")
    assert len(taken) >= EVENTS
    assert most_in_a_period(taken, 1.0) <= PER_S
    # How many turns there were, whatever a busy machine made of some: those taken late are forfeited.
    middle = granted[KILLED_AFTER // 4 : -KILLED_AFTER // 4]
    assert (len(middle) - 1) / (middle[-1] - middle[0]) * 1e6 >= 0.95 * PER_S
