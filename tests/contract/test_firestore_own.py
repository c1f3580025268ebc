"""What only the Firestore engine has: its native values, its few calls, its documents' places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import (
    BadCursorError,
    ConfigError,
    DeclarationError,
    NotFoundError,
    StoreUnavailableError,
    VersionConflictError,
)
from holdfast.model import Claim, Document, Index, document
from holdfast.store import (
    ABSENT,
    Catalog,
    Committed,
    Increment,
    MigrationRequest,
    Query,
    Store,
    check,
    create,
    delete,
    patch,
    put,
)
from holdfast.store.contract.harness import exact
from holdfast.store.counter import Counter, CounterShard
from holdfast.store.firestore import connect
from holdfast.store.firestore.address import FirestoreAddress, parse_address
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.engine import FirestoreEngine
from holdfast.store.firestore.values import decode, decode_fields, encode, encode_fields, field_path
from holdfast.store.firestore.wire import Document as Raw
from holdfast.store.firestore.wire import Value, Write

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
_NAMES = st.text() | st.sampled_from(["", "~", "~json", "__x__"])
JSON = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(_NAMES, inner), max_leaves=20)


@document("things/{id}", indexes=[Index("size"), Index("size", "name")])
class Thing(Document):
    id: str
    name: str = ""
    size: int = 0
    at: datetime | None = None
    blob: bytes = b""
    ratio: float = 0.0
    rest: Any = None


@document(
    "{env}-shelves/{shelf}/books/{id}",
    path_only=["shelf"],
    indexes=[Index("pages", across="parents")],
    claim=Claim(due="due"),
)
class Book(Document):
    shelf: str
    id: str
    pages: int = 0
    due: datetime | None = None
    fence: int = 0


class CountedLink(FirestoreClient):
    """A real client that records its calls."""

    def __init__(self, address: FirestoreAddress) -> None:
        super().__init__(address)
        self.calls: list[str] = []

    async def read(self, names: Sequence[str]) -> dict[str, Any]:
        self.calls += [f"read {len(names)}"] if names else []
        return await super().read(names)

    async def commit(self, writes: Iterable[Any]) -> list[Any]:
        made = list(writes)
        # Notifications are published in the background.
        if not any("/_holdfast_wake/" in write.update.name for write in made):
            self.calls.append(f"commit {len(made)}")
        return await super().commit(made)

    async def write_each(self, writes: Iterable[Any]) -> list[tuple[int, str, Any]]:
        made = list(writes)
        self.calls.append(f"write each of {len(made)}")
        return await super().write_each(made)

    def taken(self) -> list[str]:
        calls, self.calls = self.calls, []
        return calls


@pytest.fixture
async def connection(firestore_url: str) -> AsyncIterator[CountedLink]:
    connection = CountedLink(parse_address(firestore_url))
    yield connection
    await connection.close()  # a second time where a store had it: that is fine


@pytest.fixture
async def store(firestore_url: str) -> AsyncIterator[Store]:
    store = Store(await connect(firestore_url, Catalog([Thing, Book, CounterShard])))
    yield store
    await store.close()


@given(JSON)
def test_any_json_value_comes_back_the_same(value: Any) -> None:
    assert exact(decode(encode(value))) == exact(value)


@given(st.dictionaries(_NAMES, JSON, max_size=5))
def test_any_field_names_come_back_the_same(fields: dict[str, Any]) -> None:
    encoded = encode_fields(fields)
    assert all(name and not (name.startswith("__") and name.endswith("__")) for name in encoded)
    assert decode_fields(encoded) == fields


def test_no_list_is_directly_in_a_list_and_none_is_deeper_than_it_was() -> None:
    deep: Any = "end"
    for _ in range(20):
        deep = [deep]
    inner = encode(deep).array_value.values[0]
    assert inner.WhichOneof("value_type") == "map_value"
    assert [v.WhichOneof("value_type") for v in inner.map_value.fields.values()] == ["string_value"]
    assert decode(encode(deep)) == deep


def test_odd_field_names_are_quoted_in_paths() -> None:
    assert field_path("spot.city") == "spot.city"
    assert field_path("mit-Strich.~x.__y__") == "`mit-Strich`.`~~x`.`~__y__`"


async def test_values_are_kept_in_firestores_own_types(store: Store, connection: CountedLink) -> None:
    at = datetime(2026, 3, 1, 9, 30, 0, 125431, tzinfo=UTC)
    await store.commit(create(Thing(id="t", name="n", size=2**62, at=at, blob=b"\x00\xff", ratio=2.0)))
    name = f"{connection.address.root}/things/t"
    kinds = {n: v.WhichOneof("value_type") for n, v in (await connection.read([name]))[name].fields.items()}
    assert kinds == {
        "id": "string_value", "name": "string_value", "size": "integer_value", "at": "timestamp_value",
        "blob": "bytes_value", "ratio": "double_value", "rest": "null_value",
    }  # fmt: skip


async def test_a_document_lies_under_its_path_without_the_fields_that_say_so(
    store: Store, connection: CountedLink
) -> None:
    await store.commit(create(Book(shelf="{env}", id="b", pages=7)))
    name = f"{connection.address.root}/dev-shelves/{{env}}/books/b"
    assert set((await connection.read([name]))[name].fields) == {"id", "pages", "due", "fence"}
    found = await store.get(Book, "{env}", "b")
    assert found is not None
    assert found.doc == Book(shelf="{env}", id="b", pages=7)


async def test_a_question_across_parents_sees_only_its_own_shape(
    store: Store, connection: CountedLink
) -> None:
    long_ago = encode(datetime(2020, 1, 1, tzinfo=UTC))
    for path in ("dev-shelves/a/books/x", "prod-shelves/a/books/x", "carts/a/books/x", "books/x"):
        fields = {"id": encode("x"), "pages": encode(len(path)), "due": long_ago, "fence": encode(0)}
        await connection.commit([Write(update=Raw(name=f"{connection.address.root}/{path}", fields=fields))])
    everywhere = Query(Book).order_by("pages").across_parents()
    assert [s.key async for s in store.scan(everywhere.limit(1))] == ["a\x01x"]
    assert await store.count(everywhere) == 1
    assert await store.sum(everywhere, "pages") == len("dev-shelves/a/books/x")
    assert [s.key for s in await store.claim_due(Book, limit=3, lease_s=9)] == ["a\x01x"]


async def test_a_cursor_into_another_place_is_refused(store: Store) -> None:
    await store.commit(create(Thing(id="a")), create(Thing(id="b")))
    page = await store.query(Query(Thing).order_by("size").limit(1))
    plan = store._plan(Query(Thing).order_by("size"))
    forged = plan.cursor_at(page.docs[0], "a/b/c")
    with pytest.raises(BadCursorError):
        await store.query(Query(Thing).order_by("size").after(forged))


async def test_questions_firestore_does_not_take_whole_are_sieved(store: Store) -> None:
    await store.commit(*(create(Thing(id=f"{n:02}", size=n, name=f"n{n % 3}")) for n in range(60)))
    many = Query(Thing).where("size", "not-in", list(range(5, 30))).limit(10)
    assert [s.doc.size async for s in store.scan(many)] == [*range(5), *range(30, 60)]
    assert await store.count(many) == 35
    two = Query(Thing).where("size", "!=", 3).where("name", "!=", "n0").order_by("size", "name")
    kept = [n for n in range(60) if n != 3 and n % 3]
    assert [s.doc.size async for s in store.scan(two.limit(7))] == kept
    assert await store.sum(two, "size") == sum(kept)


async def test_a_commit_is_one_read_of_all_it_changes_and_one_write(connection: CountedLink) -> None:
    store = Store(FirestoreEngine(connection, Catalog([Thing])))
    await store.commit(*(create(Thing(id=f"{n}")) for n in range(20)))
    assert connection.taken() == ["commit 20"]
    await store.commit(*(patch(Thing, f"{n}", changes={"size": Increment()}) for n in range(20)))
    assert connection.taken() == ["read 20", "commit 20"]
    await store.close()


async def test_many_commits_of_one_write_share_their_calls(connection: CountedLink) -> None:
    store = Store(FirestoreEngine(connection, Catalog([Thing])))
    await store.settle([[create(Thing(id=f"{n}"))] for n in range(200)])
    assert connection.taken() == ["write each of 200"]
    outcomes = await store.settle([[patch(Thing, f"{n}", changes={"size": Increment()})] for n in range(201)])
    assert connection.taken() == ["read 201", "write each of 200"]
    assert [type(outcome) for outcome in outcomes[199:]] == [Committed, NotFoundError]
    assert await store.sum(Query(Thing), "size") == 200
    await store.close()


async def test_many_callers_of_one_document_queue_and_none_is_lost(connection: CountedLink) -> None:
    store = Store(FirestoreEngine(connection, Catalog([Thing])))
    await store.commit(create(Thing(id="hot")))
    connection.taken()
    await asyncio.gather(
        *(store.commit(patch(Thing, "hot", changes={"size": Increment()})) for _ in range(50))
    )
    assert connection.taken() == ["read 1", "commit 1"] * 50
    assert await store.sum(Query(Thing), "size") == 50
    await store.close()


async def test_reading_what_is_absent_or_there_guards_the_commit(
    store: Store, connection: CountedLink
) -> None:
    await store.commit(create(Thing(id="there")))
    there = await store.get(Thing, "there")
    assert there is not None
    guards = [check(Thing, "there", expect=there.unchanged), check(Thing, "gone", expect=ABSENT)]
    await store.commit(put(Thing(id="new")), *guards, delete(Thing, "never"))
    after = await store.get(Thing, "there")
    assert after == there
    names = [f"{connection.address.root}/things/{id}" for id in ("gone", "never")]
    assert await connection.read(names) == {}
    await store.commit(put(Thing(id="there")))
    with pytest.raises(VersionConflictError):
        await store.commit(put(Thing(id="newer")), *guards)
    assert await store.get(Thing, "newer") is None


async def test_fifty_increments_at_once_are_counted_exactly(store: Store) -> None:
    counter = Counter(store, "runs")
    assert await counter.value() == 0
    await asyncio.gather(*(store.commit(*counter.writes(n)) for n in range(50)))
    assert await counter.value() == sum(range(50))
    assert await Counter(store, "run").value() == 0


async def test_migrating_says_what_to_deploy_once(store: Store) -> None:
    lines = await store.diff()
    assert lines == await store.migrate()
    assert "add collection things/{id}" in lines
    assert any(line.startswith("add index things (size ASCENDING, name ASCENDING)") for line in lines)
    assert await store.migrate() == []


async def test_what_people_deploy_is_unconfirmed_until_they_say_so(store: Store) -> None:
    undeployed = await store.undeployed()
    assert any(line.startswith("index things (size ASCENDING, name ASCENDING)") for line in undeployed)
    assert undeployed[-1].startswith("rules of ")
    await store.migrate()
    assert await store.undeployed() == undeployed
    assert await store.undeployed(confirm=True) == undeployed
    await store.migrate(MigrationRequest(drop=True))
    assert await store.undeployed() == []


async def test_an_unreachable_database_is_told_as_such() -> None:
    store = Store(await connect("firestore://nowhere?emulator=127.0.0.1:9", Catalog([Thing])))
    with pytest.raises(StoreUnavailableError):
        await store.get(Thing, "t")
    with pytest.raises(StoreUnavailableError):
        await store.commit(create(Thing(id="t")))
    await store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.get(Thing, "t")


async def test_what_the_path_alone_says_can_not_be_asked_for() -> None:
    @document("boxes/{box}/items/{id}", path_only=["box"], indexes=[Index("box")])
    class Item(Document):
        box: str
        id: str

    with pytest.raises(DeclarationError, match="path_only"):
        await connect("firestore://p?emulator=127.0.0.1:9", Catalog([Item]))


def test_an_address_names_project_database_and_emulator() -> None:
    assert parse_address("firestore://p", {}) == FirestoreAddress("p", "(default)", None)
    assert parse_address("firestore://p?database=d&emulator=h:1", {}) == FirestoreAddress("p", "d", "h:1")
    assert parse_address("firestore://p", {"FIRESTORE_EMULATOR_HOST": "e:2"}).emulator == "e:2"
    for wrong in ("firestore://", "http://p", "firestore://p/q", "firestore://p?dtabase=x"):
        with pytest.raises(ConfigError):
            parse_address(wrong, {})


def test_a_null_is_no_missing_value() -> None:
    assert encode(None) == Value(null_value=0)
    assert encode(None).WhichOneof("value_type") == "null_value"
