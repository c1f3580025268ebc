"""A patch without a read ends as the same patch through `decide`, on both SQL engines."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import apsw
import asyncpg
import pytest

from holdfast.app import open_store
from holdfast.model import Claim, Document, Index, Lifecycle, Retention, document
from holdfast.store import (
    ABSENT,
    PRESENT,
    Committed,
    Fence,
    Increment,
    Query,
    Store,
    Version,
    Write,
    check,
    create,
    delete,
    patch,
    put,
)
from holdfast.store.commit import Expect
from holdfast.store.sql.blind_patch import PENDING_BYTES_MAX, blind_patch
from holdfast.testing import ManualClock

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SIZES = (1, 3, 70)


@document(
    "parcels/{id}",
    tenant="tenant_id",
    claim=Claim(due="due_at", owner="owner", state=("status", "out")),
    indexes=[Index("status"), Index("status", across="tenants"), Index("note")],
    lifecycle=Lifecycle(
        "status",
        initial=["ready"],
        moves={"ready": ["out"], "out": ["there", "ready"], "there": []},
    ),
    immutable=["made_at"],
    retention=Retention("ended_at", after_s=60),
)
class Parcel(Document, rename="camel"):
    id: str
    tenant_id: str
    made_at: datetime
    note: str = ""
    words: list[str] = []
    status: Literal["ready", "out", "there"] = "ready"
    due_at: datetime | None = None
    ended_at: datetime | None = None
    fence: int = 0
    owner: str | None = None
    tries: int = 0
    text: str = ""


@document("desks/{id}")
class Desk(Document):
    id: str
    notes: list[str] = []


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
async def store(url: str) -> AsyncIterator[Store]:
    opened = await open_store(url, [Parcel, Desk], clock=ManualClock(NOON))
    await opened.migrate()
    await opened.commit(create(Desk(id="d")))
    yield opened
    await opened.close()


async def out(store: Store, ids: list[str], **fields: Any) -> None:
    """Create parcels and claim them once, so that their fence is 1."""
    worker = store.privileged()
    made = [Parcel(id=id, tenant_id="t", made_at=NOON, due_at=NOON, **fields) for id in ids]
    await worker.settle([[create(one)] for one in made])
    assert len(await worker.claim_due(Parcel, limit=1_000, lease_s=60, owner="first")) == len(ids)


def codes(outcomes: list[Any]) -> list[str]:
    return ["committed" if isinstance(o, Committed) else o.code for o in outcomes]


async def both_ways(
    store: Store,
    changes: list[dict[str, Any]],
    *,
    tenant: str | None = None,
    fence: int = 1,
    expecting: str = "fence",
) -> tuple[Any, Any]:
    """Make the same changes twice: to `a` as they are, to `b` in a commit with a check, which reads."""
    handle = store.privileged() if tenant is None else store.tenant(tenant)

    async def expected(id: str) -> Expect:
        found = await store.privileged().get(Parcel, id)
        version = found.version if found else 1
        return {
            "fence": Fence(fence), "nothing": None, "a document": PRESENT, "its version": Version(version),
            "another version": Version(version + 1),
        }[expecting]  # fmt: skip

    async def writes(kind: str) -> list[list[Write]]:
        keyed = [(f"{kind}{n:02}", one) for n, one in enumerate(changes)]
        return [[patch(Parcel, id, changes=one, expect=await expected(id))] for id, one in keyed]

    short = await handle.settle(await writes("a"))
    long = await handle.settle([[*one, check(Desk, "d")] for one in await writes("b")])
    assert codes(short) == codes(long)
    docs = [await all_of(store, kind, len(changes)) for kind in "ab"]
    assert docs[0] == docs[1]
    return codes(short), docs[0]


async def all_of(store: Store, kind: str, count: int) -> list[Any]:
    found = await store.privileged().get_many(Parcel, [f"{kind}{n:02}" for n in range(count)])
    for one in found:
        if one is not None:
            one.doc.id = one.doc.id[1:]
    return [one and one.doc for one in found]


def ids(count: int) -> list[str]:
    return [f"{kind}{n:02}" for kind in "ab" for n in range(count)]


SETTLED = {
    "status": "there",
    "due_at": None,
    "owner": None,
    "ended_at": NOON,
    "words": ['"ż\\👩\x07"'],
    "tries": 1,
}
CHANGES: dict[str, dict[str, Any]] = {
    "settled": SETTLED,
    "given back": {"status": "ready", "due_at": NOON + timedelta(days=1), "owner": None},
    "one field": {"tries": 7},
    "in another zone": {"due_at": datetime.fromisoformat("2026-01-02T12:00:00+05:30")},
    "no such state": {"status": "lost"},
    "wrong type": {"tries": "seven"},
    "too large a number": {"tries": 2**70},
    "no zone": {"due_at": datetime(2026, 1, 1)},
    "NUL": {"owner": "a\0b"},
    "half a character": {"text": "\ud800"},
    "a transform": {"tries": Increment(2)},
    "the fence itself": {"fence": 9},
    "immutable": {"made_at": NOON + timedelta(1)},
    "an index entry too long": {"note": "x" * 3_000},
    "indexed text": {"note": "x"},
    "a document too large": {"text": "x" * 1_100_000},
}  # fmt: skip


@pytest.mark.parametrize("tenant", [None, "t", "other"])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
async def test_a_fenced_patch_ends_as_the_same_change_made_after_a_read(
    store: Store, changes: dict[str, Any], tenant: str | None
) -> None:
    await out(store, ids(3), text="old")
    await both_ways(store, [changes] * 3, tenant=tenant)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("expecting", ["nothing", "a document", "its version", "another version"])
@pytest.mark.parametrize("tenant", [None, "t", "other"])
async def test_a_patch_without_a_fence_ends_as_the_same_change_made_after_a_read(
    store: Store, tenant: str | None, expecting: str, count: int
) -> None:
    for round, changes in enumerate([*CHANGES.values(), {"owner": None, "tries": 3}, {"tries": 4}]):
        if round % 4 == 0:
            await store.privileged().settle([[delete(Parcel, id)] for id in ids(count)])
            await out(store, ids(count), text="old")
        await both_ways(store, [changes] * count, tenant=tenant, expecting=expecting)
    await store.privileged().settle([[delete(Parcel, id)] for id in ids(count)])
    outcomes, _ = await both_ways(store, [SETTLED] * count, tenant=tenant, expecting=expecting)
    assert outcomes == ["not_found"] * count


@pytest.mark.parametrize("count", SIZES)
async def test_those_that_lost_their_claim_are_refused_and_the_others_are_committed(
    store: Store, count: int
) -> None:
    await out(store, ids(count))
    worker = store.privileged()
    for kind in "ab":
        await worker.commit(patch(Parcel, f"{kind}00", changes={"fence": Increment(1)}))
        if count > 2:
            await worker.commit(delete(Parcel, f"{kind}02"))
    outcomes, docs = await both_ways(store, [SETTLED] * count)
    lost = 2 if count > 2 else 1
    assert outcomes.count("lease_lost") == lost
    assert sum(doc is not None and doc.status == "there" for doc in docs) == count - lost


@pytest.mark.parametrize("count", [1, 3])
async def test_patches_of_the_same_and_of_other_fields_are_merged(store: Store, count: int) -> None:
    await out(store, ids(count), text="old")
    rounds: list[dict[str, Any]] = [
        {"tries": 1, "owner": "x"}, {"tries": 2}, {"owner": None}, {"words": ["a", "b"], "tries": 3},
        {"text": "new"}, {"words": []}, {"text": "'\"\\ż👩", "owner": "y"},
    ]  # fmt: skip
    for changes in rounds:
        outcomes, docs = await both_ways(store, [changes] * count, expecting="nothing")
        assert outcomes == ["committed"] * count
        assert all(getattr(docs[0], name) == value for name, value in changes.items())


async def test_a_patch_that_became_long_is_folded_into_the_document(store: Store, url: str) -> None:
    await out(store, ids(1))
    for number in range(80):
        fields: dict[str, Any] = {"tries": number, "text": "x" * 300, "words": [f"{number}" * 100]}
        name = list(fields)[number % 3]
        await both_ways(store, [{name: fields[name]}], expecting="nothing")
    assert len(await _patch_text(url)) <= 2 * PENDING_BYTES_MAX
    await both_ways(store, [{"text": "x" * (PENDING_BYTES_MAX + 1)}], expecting="nothing")
    assert await _patch_text(url) == ""


async def _patch_text(url: str) -> str:
    """The stored patch of `a00`, read past the store."""
    [[text]] = await _execute(url, "SELECT CAST(_patch AS TEXT) FROM parcels WHERE _key = 'a00'")
    return text or ""


async def test_a_second_fenced_patch_is_merged_over_the_first(store: Store) -> None:
    await out(store, ids(3))
    await both_ways(store, [{"status": "ready", "due_at": NOON, "tries": 1, "text": "once"}] * 3)
    await store.privileged().claim_due(Parcel, limit=10, lease_s=60, owner="second")
    _, docs = await both_ways(store, [{"status": "ready", "due_at": None, "tries": 2}] * 3, fence=2)
    assert [(doc.tries, doc.text, doc.fence) for doc in docs] == [(2, "once", 2)] * 3


async def test_a_move_the_lifecycle_forbids_is_refused(store: Store) -> None:
    await out(store, ids(2))
    await both_ways(store, [SETTLED] * 2)
    outcomes, docs = await both_ways(store, [{"status": "ready"}] * 2)
    assert outcomes == ["illegal_move"] * 2
    assert [doc.status for doc in docs] == ["there"] * 2


async def test_whatever_follows_a_fenced_patch_sees_it(store: Store) -> None:
    await out(store, ids(1))
    await both_ways(store, [SETTLED])
    worker = store.privileged()
    page = await worker.query(Query(Parcel).where("status", "==", "there"))
    assert [item.doc.words for item in page.items] == [SETTLED["words"]] * 2
    await worker.commit(patch(Parcel, "a00", changes={"text": "later"}))
    found = await worker.get(Parcel, "a00")
    assert found is not None
    assert (found.doc.text, found.doc.tries, found.doc.words) == ("later", 1, SETTLED["words"])
    found.doc.tries = 5
    await worker.commit(put(found.doc, found.unchanged))
    found = await worker.get(Parcel, "a00")
    assert found is not None
    assert (found.doc.tries, found.doc.status) == (5, "there")
    await store.clock.advance(61)  # type: ignore[attr-defined]
    assert await worker.expire(Parcel) == 2


async def test_several_changes_of_one_document_in_one_go_keep_their_order(store: Store) -> None:
    await out(store, ["a00"])
    writes = [
        [patch(Parcel, "a00", changes={"tries": n, "text": f"{n}"}, expect=Fence(1))] for n in range(20)
    ]
    assert codes(await store.privileged().settle(writes)) == ["committed"] * 20
    found = await store.privileged().get(Parcel, "a00")
    assert found is not None
    assert (found.doc.tries, found.doc.text) == (19, "19")


async def test_new_documents_in_one_go_are_refused_one_by_one(store: Store) -> None:
    worker = store.privileged()
    await worker.commit(create(Parcel(id="p05", tenant_id="t", made_at=NOON)))
    parcels = [Parcel(id=f"p{n:02}", tenant_id="t", made_at=NOON) for n in range(40)]
    parcels[7].status = "there"
    outcomes = codes(await worker.settle([[create(one)] for one in parcels]))
    assert (outcomes[5], outcomes[7]) == ("already_exists", "illegal_move")
    assert outcomes.count("committed") == 38
    other = store.tenant("other")
    refused = await other.settle(
        [[create(Parcel(id=f"q{n}", tenant_id="t", made_at=NOON))] for n in range(5)]
    )
    assert codes(refused) == ["wrong_tenant"] * 5


@pytest.mark.parametrize("expect", [Fence(1), Version(1), PRESENT, None], ids=repr)
def test_only_plain_changes_are_blind_patches(expect: Expect) -> None:
    plain = {name for name, changes in CHANGES.items() if is_blind(Parcel, changes, expect)}
    assert plain == {"settled", "given back", "one field", "in another zone"}


def test_what_no_row_can_meet_is_decided() -> None:
    expectations: list[Any] = [ABSENT, Fence(2**63), Version(2**63), Version("1")]  # type: ignore[arg-type]
    assert not any(is_blind(Parcel, SETTLED, expect) for expect in expectations)
    assert not is_blind(Desk, {"notes": ["x"]}, Fence(1)), "no claim, so no fence"


def test_a_declaration_that_must_see_the_document_is_decided() -> None:
    @document("checked/{id}")
    class Checked(Document):
        id: str
        low: int = 0
        high: int = 0

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("low is above high")

    @document("arrays/{id}")
    class Array(Document, array_like=True):
        id: str
        number: int = 0

    @document("tables/{id}", all_columns=True)
    class Shown(Document):
        id: str
        number: int = 0

    assert not is_blind(Checked, {"low": 1})
    assert not is_blind(Array, {"number": 1})
    assert not is_blind(Shown, {"number": 1})
    assert is_blind(Desk, {"notes": []})


def is_blind(cls: type[Document], changes: dict[str, Any], expect: Expect = None) -> bool:
    return blind_patch(patch(cls, "x", changes=changes, expect=expect)) is not None


async def test_a_patch_is_one_statement_on_sqlite_beside_those_of_any_commit(
    sqlite_url: str, statements: list[str]
) -> None:
    store = await open_store(sqlite_url, [Parcel, Desk])
    await store.migrate()
    await store.settle([[create(Desk(id=f"d{n:02}"))] for n in range(50)])
    for count, verb in ((1, "UPDATE"), (1, "UPDATE"), (50, "INSERT"), (50, "INSERT")):
        writes = [[patch(Desk, f"d{n:02}", changes={"notes": ["x"]})] for n in range(count)]
        await store.settle(writes)  # what is done once, such as the view of a batch
        statements.clear()
        assert codes(await store.settle(writes)) == ["committed"] * count
        touching = [sql for sql in statements if 'desks"' in sql]
        assert [sql.split()[0] for sql in touching] == [verb]
        assert len(statements) - len(touching) <= 4, statements
    await store.close()


async def test_the_row_keeps_its_json_and_has_the_patch_next_to_it(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, [Parcel, Desk], clock=ManualClock(NOON))
    await store.migrate()
    await store.commit(create(Desk(id="d")))
    await out(store, ids(5))
    await both_ways(store, [SETTLED] * 5)
    await store.close()
    connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    sql = "SELECT substr(_key, 1, 1), count(_patch), count(*) FROM parcels GROUP BY 1"
    assert connection.execute(sql).fetchall() == [("a", 5, 5), ("b", 0, 5)]
    connection.close()


async def _execute(url: str, sql: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        rows = connection.execute(sql).fetchall()
        connection.close()
        return rows
    server = await asyncpg.connect(url)
    rows = [tuple(row) for row in await server.fetch(sql)]
    await server.close()
    return rows


async def test_a_store_without_the_patch_column_takes_patches_after_migrating(url: str) -> None:
    store = await open_store(url, [Parcel, Desk], clock=ManualClock(NOON))
    await store.migrate()
    await out(store, ids(2), text="old")
    await store.close()
    await _execute(url, "DROP VIEW view_parcels")
    await _execute(url, "ALTER TABLE parcels DROP COLUMN _patch")
    store = await open_store(url, [Parcel, Desk], clock=ManualClock(NOON))
    assert await store.diff() == ["add column parcels._patch", "create view view_parcels"]
    await store.migrate()
    assert await store.diff() == []
    await store.commit(create(Desk(id="d")))
    _, docs = await both_ways(store, [SETTLED] * 2)
    assert [(doc.status, doc.text) for doc in docs] == [("there", "old")] * 2
    await store.close()
