"""On SQLite a commit of many documents that is alone in its transaction is undone with the transaction."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError
from holdfast.kit.metering import METER_MODELS, Fact, Meter, UsageSum, record_facts
from holdfast.store import Store, Write, create, patch, upsert
from holdfast.store.sql.counting_upsert import NUMBER_MAX
from holdfast.store.sqlite.bulk_insert import WRITES_MIN
from holdfast.store.transforms import Increment
from tests.faults.models import Counter

NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
IDS = [str(n) for n in range(WRITES_MIN * 2)]


@contextlib.asynccontextmanager
async def _opened(url: str) -> AsyncIterator[Store]:
    store = await open_store(url, [Counter, *METER_MODELS.all])
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


def _creates(prefix: str) -> list[Write]:
    return [create(Counter(id=f"{prefix}{id}")) for id in IDS]


def _verbs(statements: list[str]) -> list[str]:
    return [statement.split()[0] for statement in statements]


async def _stored(store: Store, prefix: str) -> list[int]:
    found = await store.get_many(Counter, [f"{prefix}{id}" for id in IDS])
    return [one.version for one in found if one is not None]


async def test_a_lone_commit_of_many_documents_has_no_savepoint(
    sqlite_url: str, statements: list[str]
) -> None:
    async with _opened(sqlite_url) as store:
        await store.commit(*_creates("a"))
        statements.clear()
        await store.commit(*_creates("b"))
        assert "SAVEPOINT" not in _verbs(statements)
        assert _verbs(statements).count("BEGIN") == 1
        inserts = [one for one in statements if one.startswith("INSERT")]
        assert inserts, "made by bulk insert"
        assert all(one.startswith("INSERT OR ROLLBACK") for one in inserts)


async def test_a_refused_one_leaves_nothing_and_the_next_is_made(
    sqlite_url: str, statements: list[str]
) -> None:
    async with _opened(sqlite_url) as store:
        await store.commit(create(Counter(id="a20")))
        statements.clear()
        with pytest.raises(AlreadyExistsError, match="'a20'"):
            await store.commit(*_creates("a"), create(Counter(id="other")))
        assert _verbs(statements).count("BEGIN") == 2, "the second decides which document was refused"
        assert len(await _stored(store, "a")) == 1
        assert await store.get(Counter, "other") is None
        await store.commit(*_creates("b"))
        assert len(await _stored(store, "b")) == len(IDS)


async def test_versions_stay_apart_where_another_store_commits_around_a_refused_one(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as ours, _opened(sqlite_url) as others:
        await ours.commit(*_creates("a"))
        await others.commit(*_creates("b"))
        with pytest.raises(AlreadyExistsError):
            await ours.commit(*_creates("b"))
        await others.commit(patch(Counter, "b1", changes={"value": 1}))
        await ours.commit(*_creates("c"))
        await others.commit(*_creates("d"))
        versions = [set(await _stored(ours, prefix)) for prefix in "abcd"]
        assert [len(one) for one in versions] == [1, 2, 1, 1]
        assert len(set.union(*versions)) == 5


async def test_several_at_once_are_refused_each_by_itself(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        await store.commit(create(Counter(id="b3")))
        outcomes = await store.settle([_creates("a"), _creates("b"), _creates("c")])
        assert [isinstance(one, AlreadyExistsError) for one in outcomes] == [False, True, False]
        assert [len(await _stored(store, prefix)) for prefix in "abc"] == [len(IDS), 1, len(IDS)]


async def test_a_batch_of_creates_is_one_statement_that_leaves_out_taken_ids(
    sqlite_url: str, statements: list[str]
) -> None:
    async with _opened(sqlite_url) as store:
        await store.settle([[one] for one in _creates("a")])
        statements.clear()
        await store.settle([[one] for one in _creates("b")])
        inserts = [one for one in statements if one.startswith("INSERT")]
        assert len(inserts) == 1
        assert inserts[0].startswith("INSERT OR IGNORE")
        assert len(await _stored(store, "b")) == len(IDS)


async def test_of_a_batch_of_creates_only_those_are_refused_whose_ids_are_taken(
    sqlite_url: str, statements: list[str]
) -> None:
    async with _opened(sqlite_url) as store:
        await store.commit(create(Counter(id="a20")))
        statements.clear()
        creates = [*_creates("a"), create(Counter(id="a3"))]
        outcomes = await store.settle([[one] for one in creates])
        refused = [n for n, one in enumerate(outcomes) if isinstance(one, AlreadyExistsError)]
        assert refused == [20, len(IDS)]
        assert len(await _stored(store, "a")) == len(IDS)
        await store.settle([[one] for one in _creates("b")])
        assert len(await _stored(store, "b")) == len(IDS)


async def test_facts_are_counted_where_a_sum_has_to_be_decided(sqlite_url: str) -> None:
    async with _opened(sqlite_url) as store:
        row = UsageSum(
            tenant_id="acme", metric="calls", day="2026-11-15", month="2026-11", shard=0, value=NUMBER_MAX
        )
        everyone = store.privileged()
        for by in (NUMBER_MAX, 10):
            await everyone.commit(upsert(row, {"value": Increment(by)}))
        facts = [Fact(tenant_id="acme", name=id, metrics={"calls": 1}, at=NOON) for id in IDS]
        # At the same time, so that one of them finds what the other has recorded.
        recorded = await asyncio.gather(*(record_facts(everyone, facts) for _ in range(2)))
        assert sum(one.counted for one in recorded) == len(IDS)
        assert await Meter(store, tenant_id="acme").day("calls", "2026-11-15") == NUMBER_MAX + 10 + len(IDS)
