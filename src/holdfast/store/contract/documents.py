"""A document is read as it was written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from msgspec import UNSET

from holdfast.ids import ulid
from holdfast.model.limits import DOCUMENT_BYTES_MAX, INTEGER_MAX, INTEGER_MIN
from holdfast.store.commit import create, put
from holdfast.store.contract.harness import exact
from holdfast.store.contract.models import NOON, Leaf, Letter, LogEntry, Note, Seat, Spot
from holdfast.store.query import Query
from holdfast.store.store import Store

VALUES: list[dict[str, Any]] = [
    {},
    {"whole": INTEGER_MAX, "mixed": INTEGER_MIN, "anything": INTEGER_MAX},
    {"whole": 2**53 + 1, "moment": 2**53 + 1, "scores": [2**53 + 1, 2.0**53]},
    {"part": -0.0, "mixed": -0.0, "anything": -0.0},
    {"part": 1e308, "mixed": 5e-324, "anything": 1.7976931348623157e308},
    {"part": 0.1 + 0.2, "mixed": 1e22, "anything": [1, 1.0, 1e16, -1e-7]},
    {"mixed": 1, "anything": 1}, {"mixed": 1.0, "anything": 1.0}, {"mixed": True, "anything": True},
    {"mixed": "1", "anything": "2026-01-01T00:00:00Z"}, {"mixed": None}, {"mixed": ""},
    {"at": datetime(1, 1, 1, tzinfo=UTC), "moment": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)},
    {"at": NOON + timedelta(microseconds=1), "moment": NOON - timedelta(microseconds=1)},
    {"at": datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)},
    {"blob": bytes(range(256))}, {"blob": b"\x00"},
    {"text": "Zażółć 日本 👩‍👩‍👧 \U0010fffd e\u0301 \u200f\ufeff", "anything": "\U0001f300"},
    {"anything": "a\x00b", "table": {"nul": "\x00"}},
    {"labels": [""], "scores": [None, True, "x", 1, 1.5]}, {"labels": ["a", "a", "b"]},
    {"anything": []}, {"anything": {}}, {"anything": [[], [[1, [2]]], {"a": [[]]}]},
    {"table": {"": 1, "a.b": 2, "`": 3, "__name__": 4, "a/b": 5, "ż": None, " ": [], "0": {}, "\\": "\\"}},
    {"table": {"_type": "x", "__x__": {"__y__": [{"__z__": 1}]}}},
    {"maybe": None}, {"maybe": 0}, {"spot": Spot("Ålesund")}, {"spot": Spot("", "Main")},
]  # fmt: skip

IDS = [
    "a", "A", "a b", "a.b", ".a", "a..", "ż", "日本", "👩", "e\u0301", "%2F", "a%", "\\", "'\"`",
    "_", "__", "__a", "a__", "~", "-", "0", "00", "\u00a0", "a" * 500, "ż" * 250, "*", "[x]", "{y}",
    "#", "?", "a:b", "$",
]  # fmt: skip


class DocumentContract:
    async def test_a_document_comes_back_with_the_types_it_had(self, store: Store) -> None:
        notes = [Note(id=f"{n:02}", **fields) for n, fields in enumerate(VALUES)]
        await store.commit(*(create(note) for note in notes))
        found = await store.get_many(Note, [note.id for note in notes])
        assert [exact(s and s.doc) for s in found] == [exact(note) for note in notes]
        page = await store.query(Query(Note))
        assert [exact(doc) for doc in page.docs] == [exact(note) for note in notes]

    async def test_missing_null_and_zero_are_three_things(self, store: Store) -> None:
        for id, value in [("missing", UNSET), ("null", None), ("zero", 0)]:
            await store.commit(create(Note(id=id, maybe=value)))
        found = await store.get_many(Note, ["missing", "null", "zero"])
        assert [s and s.doc.maybe for s in found] == [UNSET, None, 0]

    async def test_a_time_in_any_zone_comes_back_as_the_same_instant_in_utc(self, store: Store) -> None:
        there = datetime(2026, 3, 29, 1, 30, 0, 5, tzinfo=timezone(timedelta(hours=-7, minutes=-30)))
        await store.commit(create(Note(id="n", at=there)))
        found = await store.get(Note, "n")
        assert found is not None
        assert exact(found.doc.at) == exact(there.astimezone(UTC))

    async def test_ids_may_hold_what_every_engine_can_keep(self, store: Store) -> None:
        await store.settle([[create(Note(id=id, text=id))] for id in IDS])
        found = await store.get_many(Note, IDS)
        assert [s and (s.doc.id, s.doc.text) for s in found] == [(id, id) for id in IDS]

    async def test_what_is_not_there_is_none(self, store: Store) -> None:
        assert await store.get(Note, "nobody") is None
        assert await store.get(Leaf, "a", "b", "c") is None
        assert await store.get_many(Note, []) == []

    async def test_many_are_given_in_the_order_asked(self, store: Store) -> None:
        await store.settle([[create(Note(id=id))] for id in "abc"])
        found = await store.get_many(Note, ["c", "x", "a", "c"])
        assert [s and s.doc.id for s in found] == ["c", None, "a", "c"]

    async def test_changing_an_object_changes_nothing_that_is_kept(self, store: Store) -> None:
        note = Note(id="n", labels=["a"], table={"x": [1]})
        await store.commit(create(note))
        note.labels.append("b")
        note.table["x"].append(2)
        first = await store.get(Note, "n")
        assert first is not None
        first.doc.labels.append("c")
        second = await store.get(Note, "n")
        assert second is not None
        assert (second.doc.labels, second.doc.table) == (["a"], {"x": [1]})

    async def test_fields_known_from_the_path_come_back(self, store: Store) -> None:
        acme = store.tenant("acme")
        await acme.commit(create(Letter(tenant_id="acme", id="l", subject="hello")))
        found = await acme.get(Letter, "acme", "l")
        assert found is not None
        assert found.doc == Letter(tenant_id="acme", id="l", subject="hello")

    async def test_the_same_id_under_two_parents_is_two_documents(self, store: Store) -> None:
        places = [("t", "a", "x"), ("t", "b", "x"), ("u", "a", "x")]
        for size, (tree, branch, id) in enumerate(places):
            await store.commit(create(Leaf(tree=tree, branch=branch, id=id, size=size)))
        found = await store.get_many(Leaf, places)
        assert [s and s.doc.size for s in found] == [0, 1, 2]

    async def test_an_id_is_made_where_the_declaration_says_how(self, store: Store) -> None:
        entry, seat = LogEntry(at=NOON), Seat(row="b", number=7)
        await store.commit(create(entry), create(seat))
        assert len(entry.id) == len(ulid())
        assert seat.id == "b_7"
        assert [bool(await store.get(LogEntry, entry.id)), bool(await store.get(Seat, "b_7"))] == [True, True]

    async def test_a_document_of_the_largest_size_is_kept(self, store: Store) -> None:
        text = "ż" * (DOCUMENT_BYTES_MAX // 2 - 500)
        await store.commit(put(Note(id="big", anything=text)))
        found = await store.get(Note, "big")
        assert found is not None
        assert found.doc.anything == text
