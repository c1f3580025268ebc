"""Facts recorded by batches: any tenants, each once, with few statements, whoever else records them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError, BadIdError, InvalidError, WrongTypeError
from holdfast.kit.metering import (
    METER_MODELS,
    Allowance,
    AllowanceFields,
    Fact,
    Meter,
    MeterModels,
    Recorded,
    UsageEvent,
    UsageEventFields,
    UsageSum,
    UsageSumFields,
    batch,
    record_facts,
)
from holdfast.kit.metering.metric_sums import add_upsert
from holdfast.kit.metering.models import event_id, fact_id
from holdfast.model import CompositeId, Document, Index, document, schema_of
from holdfast.store import Store, Write, create_many
from holdfast.store.port import MigrationRequest

DOCUMENTS: list[type[Document]] = [UsageEvent, UsageSum, Allowance]
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)


def _fact(number: int, *, tenant_id: str = "acme", at: datetime = NOON) -> Fact:
    return Fact(tenant_id=tenant_id, name=f"f{number}", metrics={"calls": 1, "tokens": number}, at=at)


async def test_a_batch_counts_for_each_tenant_and_day(kit_store: Store) -> None:
    facts = [
        _fact(n, tenant_id=f"t{n % 3}", at=NOON + timedelta(days=n % 2 * 20)) for n in range(230)
    ]  # two months, and more than a commit
    everyone = kit_store.privileged()
    assert await record_facts(everyone, facts) == Recorded(230, 0)
    assert await record_facts(everyone, [*facts[:10], _fact(1_000, tenant_id="t0")]) == Recorded(1, 10)
    for number in range(3):
        meter = Meter(kit_store, tenant_id=f"t{number}")
        mine = [fact for fact in facts if fact.tenant_id == f"t{number}"]
        for month in ("2026-11", "2026-12"):
            counted = sum(1 for fact in mine if f"{fact.at:%Y-%m}" == month)
            assert await meter.month("calls", month) == counted + (number == 0 and month == "2026-11")
            assert await meter.rebuild(month) == []


async def test_recorders_of_the_same_facts_count_each_once(kit_store: Store) -> None:
    everyone = kit_store.privileged()
    facts = [_fact(n) for n in range(120)]
    shares = [facts[:80], facts[40:], facts[::2], facts]
    recorded = await asyncio.gather(*(record_facts(everyone, share) for share in shares))
    assert sum(one.counted for one in recorded) == len(facts)
    meter = Meter(kit_store, tenant_id="acme")
    assert await meter.month_sums("2026-11") == {"calls": 120, "tokens": sum(range(120))}
    assert await meter.rebuild("2026-11") == []


async def test_a_hundred_facts_of_a_tenant_are_a_few_statements(
    sqlite_url: str, statements: list[str]
) -> None:
    store = await open_store(sqlite_url, DOCUMENTS)
    await store.migrate()
    await record_facts(store.privileged(), [_fact(0)])
    statements.clear()
    assert await record_facts(store.privileged(), [_fact(n) for n in range(1, 101)]) == Recorded(100, 0)
    kinds = Counter(statement.split()[0] for statement in statements)
    assert kinds["INSERT"] <= 3, "96 and 4 rows of the ledger, all sums"
    assert kinds["UPDATE"] == 1, "the newest version"
    assert kinds["SELECT"] <= 2, "which facts are stored, the newest version"
    assert kinds["COMMIT"] == 1
    await store.close()


async def test_a_refused_fact_keeps_all_from_being_counted_and_leaves_no_read_behind(
    kit_store: Store,
) -> None:
    everyone = kit_store.privileged()
    await record_facts(everyone, [_fact(1_000)])
    facts = [_fact(n) for n in range(150)]
    wrong = Fact(tenant_id="acme", name="wrong", metrics={"calls": "one"}, at=NOON)  # type: ignore[dict-item]
    with pytest.raises(WrongTypeError, match="metrics"):
        await record_facts(everyone, [*facts, wrong])
    with pytest.raises(BadIdError):
        await record_facts(everyone, [_fact(0, tenant_id="a/b")])
    assert not [one for one in asyncio.all_tasks() if "_Batch.stored" in str(one.get_coro())]
    assert await record_facts(everyone, facts) == Recorded(150, 0)


async def test_facts_are_looked_up_once_and_by_a_server_while_their_events_are_made(
    kit_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    get_many = Store.get_many

    async def noted_read(self: Store, cls: type[Any], ids: Any) -> Any:
        order.append("read")
        return await get_many(self, cls, ids)

    def noted_creates(events: Sequence[Document]) -> list[Write]:
        order.extend(["create"] * len(events))
        return create_many(events)

    monkeypatch.setattr(Store, "get_many", noted_read)
    monkeypatch.setattr(batch, "create_many", noted_creates)
    assert await record_facts(kit_store.privileged(), [_fact(n) for n in range(5)]) == Recorded(5, 0)
    made = ["create"] * 5
    assert order == ([*made, "read"] if kit_store.capabilities.embedded else ["read", *made])


async def test_a_fact_whose_id_or_sum_is_another_tenants_is_refused_and_not_taken_for_a_repeated_one(
    kit_store: Store,
) -> None:
    def facts(tenant_id: str, name: str, metric: str) -> list[Fact]:
        names = [f"{name}{n}" for n in range(3)]
        return [Fact(tenant_id=tenant_id, name=one, metrics={metric: 1}, at=NOON) for one in names]

    short, long = kit_store.tenant("a"), kit_store.tenant("a_b")
    assert await record_facts(short, facts("a", "b_f", "calls")) == Recorded(3, 0)
    with pytest.raises(AlreadyExistsError):
        await record_facts(long, facts("a_b", "f", "calls"))
    if kit_store.capabilities.counter_shards == 1:
        assert await record_facts(short, facts("a", "g", "b_calls")) == Recorded(3, 0)
        with pytest.raises(AlreadyExistsError):
            await record_facts(long, facts("a_b", "h", "calls"))
    assert await Meter(kit_store, tenant_id="a_b").month_sums("2026-11") == {}
    for tenant_id in ("a", "a_b"):
        assert await Meter(kit_store, tenant_id=tenant_id).rebuild("2026-11") == []


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_two_stores_that_record_the_same_facts_at_once_count_each_once(
    request: pytest.FixtureRequest, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    stores = [await open_store(url, DOCUMENTS) for _ in range(2)]
    await stores[0].migrate()
    facts = [_fact(n, tenant_id=f"t{n % 5}") for n in range(240)]
    shares = [facts[start : start + 120] for start in (0, 60, 120)]
    recorded = await asyncio.gather(
        *(record_facts(store.privileged(), share) for store in stores for share in shares)
    )
    assert sum(one.counted for one in recorded) == len(facts)
    meters = [Meter(stores[0], tenant_id=f"t{n}") for n in range(5)]
    assert [await meter.month("calls", "2026-11") for meter in meters] == [48] * 5
    assert [await meter.rebuild("2026-11") for meter in meters] == [[]] * 5
    for store in stores:
        await store.close()


async def test_recording_nothing_asks_nothing(kit_store: Store) -> None:
    assert await record_facts(kit_store.privileged(), []) == Recorded(0, 0)


@given(st.text(min_size=1, max_size=20), st.text(max_size=40))
def test_the_id_that_is_looked_up_is_the_id_of_the_event(tenant_id: str, name: str) -> None:
    try:
        event = Fact(tenant_id=tenant_id, name=name, metrics={}, at=NOON).event(METER_MODELS)
    except InvalidError:
        return
    assert event_id(tenant_id, fact_id(name)) == event.key


_ZONES = st.sampled_from([UTC, timezone(timedelta(hours=14)), timezone(-timedelta(hours=11))])


@given(st.lists(st.datetimes(datetime(2026, 1, 1), datetime(2026, 3, 1), timezones=_ZONES), min_size=1))
def test_facts_that_share_a_time_or_not_count_for_their_own_days(times: list[datetime]) -> None:
    facts = [_fact(n, at=at) for n, at in enumerate(time for at in times for time in (at, at, times[0]))]
    made = batch.make_entries(facts, [fact.name for fact in facts], METER_MODELS)
    for fact, entry in zip(facts, made, strict=True):
        assert entry.day == fact.at.astimezone(UTC).date().isoformat()
        assert entry.event == fact.event(METER_MODELS)


def test_equal_additions_to_a_sum_are_made_once_and_only_of_whole_numbers() -> None:
    def add(by: Any) -> Write:
        return add_upsert(UsageSum, "acme", "calls", "2026-11-15", 0, by)

    assert add(1) is add(1)
    assert add(1) is not add(2)
    for by in (True, 1.5):
        with pytest.raises(WrongTypeError):
            add(by)


def test_counting_in_a_sum_changes_no_index() -> None:
    sums = schema_of(UsageSum)
    assert sums.column("value") in sums.columns, "what a counting upsert adds to"
    assert not [index for index in sums.indexes if "value" in index.name]


@document(
    "holdfast_usage_events/{id}", id=CompositeId("tenant_id", "fact"), tenant="tenant_id", append_only=True,
    indexes=[Index("month", "at"), Index("-at")],
)  # fmt: skip
class EarlierEvent(UsageEventFields, rename="camel"):
    """The ledger with the indexes of an earlier release."""


@document(
    "holdfast_usage_sums/{id}", id=CompositeId("tenant_id", "metric", "day", "shard"), tenant="tenant_id",
    indexes=[
        Index("metric", "day", "value"), Index("metric", "month", "value"), Index("month", "metric", "day"),
    ],
)  # fmt: skip
class EarlierSum(UsageSumFields, rename="camel"):
    """The sums with the indexes of an earlier release."""


@document(
    "holdfast_allowances/{id}", id=CompositeId("tenant_id", "name"), tenant="tenant_id",
    indexes=[Index("name")],
)  # fmt: skip
class EarlierAllowance(AllowanceFields, rename="camel"):
    pass


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_usage_of_an_earlier_release_is_counted_on(request: pytest.FixtureRequest, engine: str) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    models = MeterModels(event=EarlierEvent, sums=EarlierSum, allowance=EarlierAllowance)
    earlier = await open_store(url, models.all)
    await earlier.migrate()
    await record_facts(earlier.privileged(), [_fact(n) for n in range(30)], models=models)
    await earlier.close()
    store = await open_store(url, DOCUMENTS)
    assert not [step for step in await store.migrate() if "index" in step]
    assert await record_facts(store.privileged(), [_fact(n) for n in range(20, 50)]) == Recorded(20, 10)
    meter = Meter(store, tenant_id="acme")
    assert await meter.month("calls", "2026-11") == await meter.day("calls", "2026-11-15") == 50
    assert await meter.rebuild("2026-11") == []
    dropped = await store.migrate(MigrationRequest(drop=True))
    assert "drop index holdfast_usage_sums__metric_day_value" in dropped
    assert await record_facts(store.privileged(), [_fact(50)]) == Recorded(1, 0)
    assert await meter.rebuild("2026-11") == []
    await store.close()
