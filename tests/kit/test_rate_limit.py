"""A rate limit that processes share: never more than n in a period, first come, first served."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.app import open_store
from holdfast.errors import InvalidError, TooManyRequestsError
from holdfast.kit.rate_limit import NestedRateLimit, RateLimitDocument, RateQuota, SharedRateLimit
from holdfast.kit.rate_limit.decision import reserve
from holdfast.store import Store
from holdfast.testing import ManualClock
from tests.kit.eventually import until

DOCUMENTS = [RateLimitDocument]
ROOT = Path(__file__).parents[2]


def most_in_a_period(turns_us: list[int], period_s: float) -> int:
    """The largest number of turns in any half-open period."""
    turns, first, most = sorted(turns_us), 0, 0
    for last, turn in enumerate(turns):
        while turn - turns[first] >= period_s * 1e6:
            first += 1
        most = max(most, last - first + 1)
    return most


quotas = st.integers(1, 60).flatmap(
    lambda count: st.builds(
        RateQuota, count=st.just(count), period_s=st.floats(0.01, 100), burst=st.integers(1, count)
    )
)
arrivals = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 20)), max_size=60)


@given(quota=quotas, steps=arrivals)
def test_no_period_has_more_turns_than_the_quota_however_callers_come(
    quota: RateQuota, steps: list[tuple[int, int]]
) -> None:
    now_us, next_us, turns = 10**15, 0, list[int]()
    for pause_us, callers in steps:
        now_us += pause_us
        reservation = reserve(quota, next_us, now_us=now_us, callers=callers)
        # A turn in the past is taken at once.
        turns += [max(now_us, turn) for turn in reservation.turns_us]
        next_us = reservation.next_us
    assert most_in_a_period(turns, quota.period_s) <= quota.count


@pytest.mark.parametrize("words", [{"count": 3, "burst": 4}, {"count": 3, "period_s": 0.0}])
def test_a_quota_that_cant_be_held_is_refused(words: dict[str, float]) -> None:
    with pytest.raises(InvalidError, match="a quota has a period above 0 and a burst from 1 to its count"):
        RateQuota(**words)  # type: ignore[arg-type]


async def test_callers_go_on_in_the_order_they_came_each_at_its_turn(
    kit_store: Store, clock: ManualClock
) -> None:
    limit, order = SharedRateLimit(kit_store, "telegram", RateQuota(count=2, period_s=1.0)), list[int]()

    async def call(number: int) -> float:
        waited = await limit.acquire("all")
        order.append(number)
        return waited

    calls = [asyncio.create_task(call(n)) for n in range(5)]
    await until(lambda: order == [0])
    for number in range(1, 5):
        await clock.advance(0.5)
        assert order == list(range(number))
        await clock.advance(0.02)
        await until(lambda number=number: len(order) == number + 1)  # type: ignore[misc]
    assert order == [0, 1, 2, 3, 4]
    assert [call.result() for call in calls] == pytest.approx([0, 0.5155, 1.0309, 1.5464, 2.0619], abs=1e-4)


async def test_who_will_not_wait_is_told_for_how_long(kit_store: Store, clock: ManualClock) -> None:
    limit = SharedRateLimit(kit_store, "telegram", RateQuota(count=1, period_s=10.0))
    await limit.try_acquire("chat-1")
    with pytest.raises(TooManyRequestsError, match=r"telegram takes 1 in 10 s; the next is free in") as told:
        await limit.try_acquire("chat-1")
    assert 10 <= told.value.after_s < 10.5
    await limit.try_acquire("chat-2")
    await clock.advance(told.value.after_s)
    await limit.try_acquire("chat-1")


async def test_a_key_of_one_tenant_or_limit_is_not_anothers(kit_store: Store) -> None:
    quota = RateQuota(count=1, period_s=60.0)
    for store in (kit_store.tenant("acme"), kit_store.tenant("beta")):
        for name in ("telegram", "github"):
            await SharedRateLimit(store, name, quota).try_acquire("x")
    with pytest.raises(TooManyRequestsError):
        await SharedRateLimit(kit_store.tenant("acme"), "github", quota).try_acquire("x")


async def test_a_burst_is_let_through_at_once_and_then_the_rate_holds(kit_store: Store) -> None:
    limit = SharedRateLimit(kit_store, "api", RateQuota(count=10, period_s=1.0, burst=4))
    for _ in range(4):
        await limit.try_acquire()
    with pytest.raises(TooManyRequestsError):
        await limit.try_acquire()


async def test_a_caller_that_gives_up_does_not_stop_those_behind_it(
    kit_store: Store, clock: ManualClock
) -> None:
    limit = SharedRateLimit(kit_store, "api", RateQuota(count=100))
    calls = [asyncio.create_task(limit.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    calls[1].cancel()
    while not all(call.done() for call in calls):
        await clock.advance(0.1)
        await asyncio.sleep(0.01)
    assert [call.cancelled() for call in calls] == [False, True, False]


PROCESSES, COUNT, PERIOD_S, ACQUIRED = 4, 30, 1.0, 25


@pytest.mark.parametrize("url", ["sqlite_url", "postgres_url"])
async def test_four_processes_never_exceed_the_quota_and_use_nearly_all_of_it(
    url: str, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue(url)
    store = await open_store(address, DOCUMENTS)
    await store.migrate()
    await store.close()
    pipe = asyncio.subprocess.PIPE
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.kit.rate_limit_worker", address, str(COUNT), str(PERIOD_S),
            str(ACQUIRED), stdin=pipe, stdout=pipe, cwd=ROOT,
        )
        for _ in range(PROCESSES)
    ]  # fmt: skip
    for process in processes:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
    outputs = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    taken = [at for out, _ in outputs for at in json.loads(out)["taken"]]
    assert len(taken) == PROCESSES * ACQUIRED
    assert most_in_a_period(taken, PERIOD_S) <= COUNT
    # How many turns there were, whatever a busy machine made of some: those taken late are forfeited.
    granted = sorted(turn for out, _ in outputs for turn in json.loads(out)["granted"])
    assert len(granted) == len(set(granted)) >= len(taken)
    middle = granted[len(granted) // 4 : -len(granted) // 4]
    assert (len(middle) - 1) / (middle[-1] - middle[0]) * 1e6 >= 0.95 * COUNT / PERIOD_S


async def test_turns_within_a_limit_for_all_keys_keep_both_limits(tmp_path: Path) -> None:
    clock = ManualClock()
    store = await open_store(f"sqlite:///{tmp_path / 'limits.db'}", DOCUMENTS, clock=clock)
    await store.migrate()
    whole, each = RateQuota(count=2), RateQuota(count=1)
    limits = [
        NestedRateLimit(SharedRateLimit(store, "all", whole), SharedRateLimit(store, "each", each))
        for _ in range(2)
    ]
    turns: dict[str, list[int]] = {key: [] for key in "abcde"}

    async def take(limit: NestedRateLimit, key: str) -> None:
        await limit.acquire(key)
        turns[key].append(clock.now_us())

    # While the others' turns keep those of "a" waiting, its own limit alone would let more of them pass.
    taking = asyncio.gather(*(take(limit, key) for key in "abcdeaa" for limit in limits))
    async with asyncio.timeout(60):
        while not taking.done():
            await clock.advance(0.01)
            await asyncio.sleep(0.001)
    await taking
    assert [len(own) for own in turns.values()] == [6, 2, 2, 2, 2]
    assert [most_in_a_period(own, 1.0) for own in turns.values()] == [1] * 5
    assert most_in_a_period([turn for own in turns.values() for turn in own], 1.0) <= 2
    await store.close()
