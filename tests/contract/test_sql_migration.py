"""Migrations of tables in use, on both SQL engines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast.app import open_store
from holdfast.clock import to_us
from holdfast.model import Claim, Document, Index, Retention, document, schema_of
from holdfast.store import MigrationRequest, Query, Store, create
from holdfast.store.sql import tables
from holdfast.store.sql.backfill import Backfill, prepare_row
from holdfast.store.sqlite.statements import SqliteTable

PAST = datetime(2026, 1, 1, tzinfo=UTC)


@document("late_claims/{id}")
class Unclaimed(Document):
    id: str
    due: datetime | None = None
    fence: int = 0


@document("late_claims/{id}", claim=Claim(due="due"))
class Claimed(Document):
    id: str
    due: datetime | None = None
    fence: int = 0


@document("retyped/{id}", indexes=[Index("rank"), Index("labels[]")])
class Ranked(Document):
    id: str
    rank: int = 0
    labels: list[str] = []


@document("retyped/{id}")
class Unranked(Document):
    id: str


def _rank_as_text(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "rank": str(fields["rank"])}


@document("retyped/{id}", indexes=[Index("rank")], upgrades={1: _rank_as_text})
class RankedByText(Document):
    id: str
    rank: str = ""
    labels: list[str] = []
    schema_version: int = 2


# The index of this retention holds unfinished documents too, as it did in earlier releases.
@document(
    "errands/{id}",
    indexes=[Index("finished_at")],
    retention=Retention("finished_at"),
)
class OlderErrand(Document):
    id: str
    finished_at: datetime | None = None


@document("errands/{id}", retention=Retention("finished_at"))
class FinishedErrand(Document):
    id: str
    finished_at: datetime | None = None


@document("posts/{id}", indexes=[Index("topic", "-at"), Index("tags[]", "-at"), Index("at")])
class Post(Document):
    id: str
    topic: str
    at: int
    tags: list[str] = []


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


async def migrated(url: str, cls: type[Document]) -> Store:
    store = await open_store(url, [cls])
    await store.migrate()
    assert await store.diff() == []
    return store


async def test_documents_from_before_a_claim_was_declared_can_be_claimed(url: str) -> None:
    store = await migrated(url, Unclaimed)
    await store.commit(create(Unclaimed(id="due", due=PAST)), create(Unclaimed(id="never")))
    await store.close()
    store = await migrated(url, Claimed)
    claimed = await store.claim_due(Claimed, limit=10, lease_s=60)
    again = await store.claim_due(Claimed, limit=10, lease_s=60)
    await store.close()
    assert [one.doc.id for one in claimed] == ["due"]
    assert again == []


async def test_a_column_of_another_type_is_filled_and_indexed_by_one_migration(url: str) -> None:
    store = await migrated(url, Ranked)
    await store.settle([[create(Ranked(id=str(n), rank=n, labels=["a"]))] for n in range(12)])
    await store.close()
    store = await open_store(url, [RankedByText])
    steps = await store.migrate()
    assert await store.diff() == []
    page = await store.query(Query(RankedByText).order_by("rank"))
    await store.close()
    assert [doc.rank for doc in page.docs] == sorted(map(str, range(12)))
    assert "create index retyped__rank" in steps
    assert "replace column retyped.rank" in steps


async def test_what_is_no_longer_declared_is_dropped_only_on_request(url: str) -> None:
    store = await migrated(url, Ranked)
    await store.commit(create(Ranked(id="a", rank=1, labels=["x"])))
    await store.close()
    store = await migrated(url, Unranked)
    drop = MigrationRequest(drop=True)
    steps = await store.diff(drop)
    assert steps == [
        "drop column retyped.rank", "drop table retyped__labels__items", "drop index retyped__rank",
    ]  # fmt: skip
    assert await store.migrate(drop) == steps
    assert (await store.diff(drop), await store.diff()) == ([], [])
    await store.close()
    store = await migrated(url, Ranked)
    page = await store.query(Query(Ranked).where("labels", "array-contains", "x"))
    await store.close()
    assert [doc.rank for doc in page.docs] == [1]


def test_a_backfill_keeps_what_a_claim_wrote_to_a_new_column() -> None:
    schema = schema_of(Claimed)
    mapping = SqliteTable(schema, "late_claims")
    body = msgspec.json.encode(Claimed(id="c", due=PAST)).decode()
    until = PAST + timedelta(hours=1)
    backfill = Backfill(columns=("due", "fence"))
    claimed = prepare_row(mapping, ("c", 2, body, None, to_us(until), 1), backfill)
    unclaimed = prepare_row(mapping, ("c", 2, body, None, None, None), backfill)
    documents = [schema.document_of(prepared) for prepared in (claimed, unclaimed)]
    assert [(one.due, one.fence) for one in documents] == [(until, 1), (PAST, 0)]


async def test_a_release_with_a_full_index_for_its_retention_works_beside_one_with_a_sparse_index(
    url: str,
) -> None:
    older = await migrated(url, OlderErrand)
    await older.commit(*(create(OlderErrand(id=id, finished_at=PAST)) for id in "ab"))
    newer = await open_store(url, [FinishedErrand])
    assert await newer.migrate(MigrationRequest(other_releases=True)) == [
        "create index errands__finished_at_with_finished_at"
    ]
    assert await newer.diff() == []
    await newer.commit(create(FinishedErrand(id="c", finished_at=PAST)), create(FinishedErrand(id="d")))
    await older.commit(create(OlderErrand(id="e", finished_at=PAST)), create(OlderErrand(id="f")))
    assert await older.expire(OlderErrand, limit=2) == 2
    assert await newer.expire(FinishedErrand) == 2
    assert [one.id for one in (await older.query(Query(OlderErrand).order_by("finished_at"))).docs] == [*"df"]
    await older.close()
    drop = MigrationRequest(drop=True)
    assert await newer.migrate(drop) == ["drop index errands__finished_at"]
    assert (await newer.diff(drop), await newer.diff()) == ([], [])
    await newer.commit(create(FinishedErrand(id="g", finished_at=PAST)))
    assert await newer.expire(FinishedErrand) == 1
    await newer.close()
    older = await migrated(url, OlderErrand)
    assert [one.id for one in (await older.query(Query(OlderErrand).order_by("finished_at"))).docs] == [*"df"]
    await older.close()


def _in_the_declared_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create indexes as earlier releases did."""
    terms = tables._ordered_terms
    monkeypatch.setattr(
        tables,
        "_ordered_terms",
        lambda *words, mirrored, dialect: terms(*words, mirrored=False, dialect=dialect),
    )


async def _newest_first(store: Store) -> list[list[int]]:
    topic = Query(Post).where("topic", "==", "a")
    tagged = Query(Post).where("tags", "array-contains", "x")
    forward, backward = [
        [post.at for post in (await store.query(query)).docs]
        for query in (topic.order_by("at"), topic.order_by("-at"))
    ]
    listed = [post.at for post in (await store.query(tagged.order_by("-at"))).docs]
    ranged = [p.at for p in (await store.query(topic.where("at", ">=", 2).order_by("-at").limit(2))).docs]
    return [forward, backward, listed, ranged]


async def test_an_index_in_the_order_of_earlier_releases_serves_until_it_is_rebuilt(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        _in_the_declared_order(earlier)
        older = await open_store(url, [Post])
        await older.migrate()
        await older.settle([create(Post(id=str(n), topic="a", at=n, tags=["x"]))] for n in range(5))
        await older.close()
    store = await open_store(url, [Post])
    expected = [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [4, 3, 2, 1, 0], [4, 3]]
    assert await _newest_first(store) == expected
    beside = MigrationRequest(other_releases=True)
    assert await store.diff(beside) == []
    assert await store.migrate(beside) == []
    rebuilt = ["rebuild index posts__topic_at_desc", "rebuild index posts__tags_at_desc"]
    assert sorted(await store.migrate()) == sorted(rebuilt)
    assert await store.diff() == []
    assert await _newest_first(store) == expected
    await store.close()
