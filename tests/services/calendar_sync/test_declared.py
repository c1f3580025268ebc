"""The data model, line by line: every field, rule, move, index and question."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import apsw
import asyncpg
import msgspec
import pytest

from holdfast.app import ddl, open_store
from holdfast.clock import to_us
from holdfast.errors import (
    AlreadyExistsError,
    BadIdError,
    IllegalMoveError,
    ImmutableFieldError,
    InvalidError,
    UnindexedQueryError,
)
from holdfast.model import schema_of
from holdfast.model.export.firestore_indexes import firestore_indexes
from holdfast.services.calendar_sync.models import DOCUMENTS, WatchChannel
from holdfast.store import Catalog, Query, Store, create, patch, put
from holdfast.store.plan import resolve
from holdfast.testing import ManualClock
from tests.services.calendar_sync.harness import ALICE, BOB, Harness

FIELDS = {
    "channelId": str, "resourceId": str, "calendarId": str, "expiration": int, "registeredAt": int,
    "lastUpdatedAt": int, "status": str,
}  # fmt: skip


@pytest.fixture
async def kept(one_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    """The service's collections and nothing else."""
    store = await open_store(one_url, DOCUMENTS, clock=clock)
    await store.migrate()
    yield store
    await store.close()


def _channel(
    harness: Harness | Store, id: str = "calendar-sync-zoe-hoge-jp-1", **fields: Any
) -> WatchChannel:
    now_ms = to_us(harness.clock.now()) // 1000
    values: dict[str, Any] = {
        "channel_id": id, "resource_id": "r", "watched_id": "zoe@hoge.jp", "expiration": now_ms + 1,
        "registered_at": now_ms, "last_updated_at": now_ms,
    }  # fmt: skip
    return WatchChannel(**(values | fields))


def test_a_channel_has_these_fields_and_no_other() -> None:
    stored = {field.encode_name for field in msgspec.structs.fields(WatchChannel)}
    assert stored == FIELDS.keys()
    assert schema_of(WatchChannel).path.names == ("watchChannels",)


async def test_the_collection_holds_exactly_these_names(harness: Harness) -> None:
    await harness.begin()
    raw = await _raw(harness.config.store)
    assert len(raw) == 2
    for document in raw:
        assert document.keys() == FIELDS.keys()
        assert all(isinstance(document[name], kind) for name, kind in FIELDS.items())


async def _raw(url: str) -> list[dict[str, Any]]:
    """The stored documents as somebody sees them who knows nothing of Holdfast."""
    if url.startswith("firestore"):
        return await asyncio.to_thread(_from_firestore, url)
    asked = 'SELECT _body FROM "watchChannels"'
    if url.startswith("sqlite"):
        rows = apsw.Connection(url.removeprefix("sqlite:///")).execute(asked)
        return [json.loads(row[0]) for row in rows]
    link = await asyncpg.connect(url)
    try:
        return [json.loads(row[0]) for row in await link.fetch(asked)]
    finally:
        await link.close()


def _from_firestore(url: str) -> list[dict[str, Any]]:
    parts = urlsplit(url)
    place = f"projects/{parts.hostname}/databases/(default)/documents/watchChannels"
    asked = urllib.request.Request(f"http://{parse_qs(parts.query)['emulator'][0]}/v1/{place}")
    asked.add_header("Authorization", "Bearer owner")
    with urllib.request.urlopen(asked) as answer:
        found = json.load(answer)["documents"]
    models = {"stringValue": str, "integerValue": int}
    return [
        {name: models[kind](text) for name, value in one["fields"].items() for kind, text in value.items()}
        for one in found
    ]


@pytest.mark.parametrize("id", ["", "a b", "ü", "x" * 65, "a.b", "a@b"])
async def test_channel_ids_have_googles_form(kept: Store, id: str) -> None:
    with pytest.raises(BadIdError):
        await kept.commit(create(_channel(kept, id)))


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_id": ""}, {"watched_id": "nobody"}, {"watched_id": "a b@hoge.jp"}, {"watched_id": "a@b"},
        {"watched_id": "x" * 250 + "@hoge.jp"}, {"expiration": -1}, {"expiration": "soon"},
        {"status": "asleep"}, {"registered_at": None},
    ],
    ids=str,
)  # fmt: skip
async def test_values_that_break_a_rule_are_refused(kept: Store, fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidError):
        await kept.commit(create(_channel(kept, **fields)))


async def test_a_channel_that_has_ended_is_never_registered(quick_harness: Harness) -> None:
    """`expiration` lies ahead at creation: what Google grants in the past is taken as a failure."""
    harness = quick_harness
    calendar = harness.engine.google.calendar(ALICE)
    watch = calendar.watch_events

    async def ended(*words: Any, **named: Any) -> Any:
        granted = await watch(*words, **named)
        return msgspec.structs.replace(granted, expiration="1000")

    calendar.watch_events = ended  # type: ignore[method-assign]
    await harness.engine.refresh()
    await harness.engine.channels.turn()
    assert [channel.watched_id for channel in await harness.channels()] == [BOB]


async def test_registered_at_never_changes(harness: Harness) -> None:
    store = harness.runtime.store
    channel = _channel(harness)
    await store.commit(create(channel))
    with pytest.raises(ImmutableFieldError, match="registeredAt"):
        await store.commit(patch(WatchChannel, channel.channel_id, changes={"registered_at": 1}))
    with pytest.raises(ImmutableFieldError, match="registeredAt"):
        await store.commit(put(_channel(harness, registered_at=1)))
    with pytest.raises(AlreadyExistsError):
        await store.commit(create(channel))


LEGAL = {("active", "active"), ("active", "expired"), ("active", "stopped"), ("expired", "expired"),
         ("expired", "active"), ("expired", "stopped"), ("stopped", "stopped")}  # fmt: skip
STATES = ("active", "expired", "stopped")


@pytest.mark.parametrize(("old", "new"), [(old, new) for old in STATES for new in STATES])
async def test_only_these_moves_are_made(kept: Store, old: str, new: str) -> None:
    store = kept
    channel = _channel(kept)
    await store.commit(create(channel))
    if old != "active":
        await store.commit(patch(WatchChannel, channel.channel_id, changes={"status": old}))
    write = patch(WatchChannel, channel.channel_id, changes={"status": new})
    if (old, new) in LEGAL:
        await store.commit(write)
    else:
        with pytest.raises(IllegalMoveError):
            await store.commit(write)


@pytest.mark.parametrize("status", ["expired", "stopped"])
async def test_a_new_channel_is_active(kept: Store, status: str) -> None:
    with pytest.raises(IllegalMoveError):
        await kept.commit(create(_channel(kept, status=status)))


INDEXES = [
    ("expiration",), ("status",), ("calendarId",), ("status", "expiration"), ("calendarId", "expiration"),
    ("status", "lastUpdatedAt"),
]  # fmt: skip


def test_these_indexes_are_declared() -> None:
    declared = {tuple(f.column.stored for f in index.fields) for index in schema_of(WatchChannel).indexes}
    assert set(INDEXES) <= declared


def test_firestore_is_told_of_the_composite_ones() -> None:
    exported = json.loads(firestore_indexes([schema_of(kind) for kind in DOCUMENTS], "dev"))
    composite = [
        tuple(field["fieldPath"] for field in index["fields"])
        for index in exported["indexes"]
        if index["collectionGroup"] == "watchChannels"
    ]
    assert {("status", "expiration"), ("calendarId", "expiration"), ("status", "lastUpdatedAt")} <= set(
        composite
    )


QUESTIONS: dict[str, tuple[Query[WatchChannel], tuple[str, ...]]] = {
    "load active channels": (Query(WatchChannel).where("status", "==", "active"), ("status",)),
    "find those that end soon": (
        Query(WatchChannel).where("status", "==", "active").where("expiration", "<", 2**53),
        ("status", "expiration"),
    ),
    "show all, soonest end first": (Query(WatchChannel).order_by("expiration"), ("expiration",)),
    "one calendar's that end soon": (
        Query(WatchChannel).where("watched_id", "==", ALICE).where("expiration", "<", 2**53),
        ("calendarId", "expiration"),
    ),
    "clean up": (
        Query(WatchChannel).where("status", "==", "expired").where("last_updated_at", "<", 2**53),
        ("status", "lastUpdatedAt"),
    ),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_question_is_served_by_its_index(name: str) -> None:
    query, fields = QUESTIONS[name]
    index = resolve(query, tenant=None, privileged=False, aggregate=None).index
    assert index is not None
    assert tuple(field.column.stored for field in index.fields)[: len(fields)] == fields


async def test_each_question_is_answered(harness: Harness) -> None:
    await harness.begin()
    found = {
        name: len((await harness.runtime.store.query(query)).docs) for name, (query, _) in QUESTIONS.items()
    }
    assert list(found.values()) == [2, 2, 2, 1, 0]
    with pytest.raises(UnindexedQueryError):
        await harness.runtime.store.query(Query(WatchChannel).where("resource_id", "==", "r"))


def test_the_seeds_question_walks_the_composite_index_in_sqlite() -> None:
    link = apsw.Connection(":memory:")
    for statement in ddl("sqlite", Catalog([WatchChannel])):
        link.execute(statement)
    asked = 'SELECT * FROM "watchChannels" WHERE "status" = ? AND "expiration" < ?'
    plan = " ".join(str(row) for row in link.execute(f"EXPLAIN QUERY PLAN {asked}", ("active", 1)))
    assert "watchChannels__status_expiration" in plan
