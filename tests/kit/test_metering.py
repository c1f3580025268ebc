"""Metering on every engine: exact sums, no fact counted twice, limits that hold."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import AlreadyExistsError, AppendOnlyError, LimitReachedError
from holdfast.kit.metering import Allowance, Meter, UsageEvent, UsageSum
from holdfast.kit.metering.meter import limit_state
from holdfast.store import Increment, Query, Store, Transaction, delete, patch
from holdfast.testing import ManualClock

DOCUMENTS = [UsageEvent, UsageSum, Allowance]
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
def meter(kit_store: Store) -> Meter:
    return Meter(kit_store, tenant_id="acme")


async def test_a_fact_counts_once_however_often_it_is_recorded(meter: Meter, kit_store: Store) -> None:
    acme = kit_store.tenant("acme")
    await acme.commit(*meter.writes("run-1", {"runs": 1, "tokens": 250}, at=NOON))
    with pytest.raises(AlreadyExistsError):
        await acme.commit(*meter.writes("run-1", {"runs": 1, "tokens": 250}, at=NOON))
    assert await meter.day("runs", "2026-11-15") == 1
    assert await meter.month("tokens", "2026-11") == 250


async def test_many_facts_at_once_tell_new_from_repeated(meter: Meter) -> None:
    facts = [(f"f{n % 80}", {"calls": 1}, NOON) for n in range(100)]
    recorded = await meter.record(facts)
    assert (recorded.counted, recorded.repeated) == (80, 20)
    assert await meter.month("calls", "2026-11") == 80


async def test_a_month_ends_at_its_last_microsecond_and_the_next_starts_at_zero(
    meter: Meter, clock: ManualClock
) -> None:
    end = datetime(2026, 12, 1, tzinfo=UTC)
    last, first = end - timedelta(microseconds=1), end
    await meter.record([("a", {"runs": 3}, last), ("b", {"runs": 5}, first)])
    assert await meter.month("runs", "2026-11") == 3
    assert await meter.month("runs", "2026-12") == 5
    clock.set(datetime(2027, 1, 1, tzinfo=UTC))
    assert await meter.this_month("runs") == 0


async def test_a_time_in_another_zone_counts_for_its_day_in_utc(meter: Meter) -> None:
    from zoneinfo import ZoneInfo

    late = datetime(2026, 11, 16, 3, tzinfo=ZoneInfo("Asia/Tokyo"))
    await meter.record([("a", {"runs": 1}, late)])
    assert await meter.day("runs", "2026-11-15") == 1


async def test_the_ledger_is_append_only(meter: Meter, kit_store: Store) -> None:
    await meter.record([("a", {"runs": 1}, NOON)])
    with pytest.raises(AppendOnlyError):
        await kit_store.tenant("acme").commit(delete(UsageEvent, "acme_a"))


async def test_simultaneous_takers_never_pass_the_limit(meter: Meter, kit_store: Store) -> None:
    acme = kit_store.tenant("acme")

    async def take() -> bool:
        try:
            await acme.commit(*meter.writes_take("runs 2026-11", limit=10))
        except LimitReachedError:
            return False
        return True

    answers = await asyncio.gather(*(take() for _ in range(40)))
    assert sum(answers) == 10
    assert await meter.used("runs 2026-11") == 10


async def test_what_is_given_back_can_be_taken_again(meter: Meter, kit_store: Store) -> None:
    acme = kit_store.tenant("acme")
    await acme.commit(*meter.writes_take("at once", limit=1))
    with pytest.raises(LimitReachedError, match="1 allowed"):
        await acme.commit(*meter.writes_take("at once", limit=1))
    await acme.commit(*meter.writes_give_back("at once"))
    await acme.commit(*meter.writes_take("at once", limit=1))
    await acme.commit(*meter.writes_give_back("at once"))
    await acme.commit(*meter.writes_give_back("at once"))
    assert await meter.used("at once") == 0


async def test_takers_in_transactions_are_told_the_usage_and_never_pass_the_limit(
    meter: Meter, kit_store: Store
) -> None:
    async def take() -> float | None:
        async def act(tx: Transaction) -> None:
            await meter.take(tx, "at once", limit=3)

        try:
            await kit_store.tenant("acme").transact(act, attempts=100)
        except LimitReachedError as fault:
            return fault.usage
        return None

    answers = await asyncio.gather(*(take() for _ in range(8)))
    assert sorted(answers, key=str) == [3.0] * 5 + [None] * 3
    assert await meter.used("at once") == 3


async def test_asking_for_more_than_the_limit_is_refused_at_once(meter: Meter) -> None:
    with pytest.raises(LimitReachedError):
        meter.writes_take("x", 11, limit=10)


async def test_what_is_taken_of_limits_is_listed_by_name_with_the_limit_of_the_last_taking(
    kit_store: Store,
) -> None:
    acme = kit_store.tenant("acme")
    meter = Meter(kit_store, tenant_id="acme")
    for name, limit in (("seats", 5), ("runs 2026-11", 10), ("seats", 8)):
        await acme.commit(*meter.writes_take(name, 2, limit=limit))
    await kit_store.tenant("beta").commit(*Meter(kit_store, tenant_id="beta").writes_take("seats", limit=1))
    first = await meter.allowances(limit=1)
    rest = await meter.allowances(limit=2, cursor=first.cursor)
    found = [(one.name, one.used, one.limit) for one in (*first.docs, *rest.docs)]
    assert found == [("runs 2026-11", 2, 10), ("seats", 4, 8)]
    await acme.commit(*meter.writes_give_back("seats", 3))
    assert [(one.used, one.limit) for one in (await meter.allowances()).docs] == [(2, 10), (1, 8)]


async def test_a_rebuild_finds_no_drift_and_mends_what_was_forged(meter: Meter, kit_store: Store) -> None:
    await meter.record(
        [(f"f{n}", {"runs": n, "tokens": 1}, NOON + timedelta(days=n % 3)) for n in range(1, 30)]
    )
    assert await meter.rebuild("2026-11") == []
    acme = kit_store.tenant("acme")
    row = (await acme.query(Query(UsageSum).where("month", "==", "2026-11").order_by("metric", "day"))).docs[
        0
    ]
    await acme.commit(patch(UsageSum, row.id, changes={"value": Increment(7)}))
    (drift,) = await meter.rebuild("2026-11", mend=True)
    assert drift.stored - drift.ledger == 7
    assert (drift.metric, drift.period) == (row.metric, row.day)
    assert await meter.rebuild("2026-11") == []


async def test_tenants_are_metered_apart(meter: Meter, kit_store: Store) -> None:
    other = Meter(kit_store, tenant_id="other")
    await meter.record([("a", {"runs": 1}, NOON)])
    await other.record([("a", {"runs": 5}, NOON)])
    assert await meter.month("runs", "2026-11") == 1
    assert await other.month("runs", "2026-11") == 5


async def test_keys_of_any_shape_are_facts(meter: Meter) -> None:
    keys = ["a/b", "", "x" * 5_000, "line\nbreak", "…/…"]
    recorded = await meter.record([(key, {"runs": 1}, NOON) for key in keys * 2])
    assert (recorded.counted, recorded.repeated) == (5, 5)


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_the_warning_comes_at_four_fifths_and_the_stop_at_the_limit(used: int, limit: int) -> None:
    state = limit_state(used, limit)
    assert (state == "reached") == (used >= limit)
    assert (state == "ok") == (used < 0.8 * limit and used < limit)
