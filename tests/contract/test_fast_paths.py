"""Bulk insert, write batch, blind patch and counting upsert decide as `decide` does, on random batches.

Each batch goes to an SQL engine, which takes its fast paths, and to the reference engine, which calls
`decide` for every write. Outcomes and documents must be the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from holdfast.app import open_store
from holdfast.clock import to_us
from holdfast.errors import HoldfastError
from holdfast.model import Claim, Document, Index, Lifecycle, document, schema_of
from holdfast.store import (
    ABSENT,
    PRESENT,
    Catalog,
    Engine,
    Fence,
    Increment,
    Store,
    Version,
    Write,
    check,
    create,
    delete,
    patch,
    put,
    upsert,
)
from holdfast.store.commit import Commit, Expect, Outcome
from holdfast.store.commit_batch import CreateBatch, PatchBatch, create_batch, join_commits
from holdfast.store.port import ClaimRequest
from holdfast.store.sql.blind_patch import blind_patch, blind_patches
from holdfast.store.sql.write_batch import (
    ClaimedPatches,
    NewDocuments,
    PermittedWrites,
    bulk_commits,
    counting_upserts,
    independent_writes,
)
from holdfast.store.sqlite import SqliteEngine, write_connection
from holdfast.store.sqlite.batch_view import BatchStatement
from holdfast.store.sqlite.bulk_insert import WRITES_MIN
from holdfast.testing import ManualClock
from tests.contract.reference import MemoryDatabase, Reference

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MANY = 256  # more than one statement takes


@document(
    "orders/{id}",
    tenant="tenant_id",
    claim=Claim(due="due_at", owner="owner", state=("status", "sending")),
    indexes=[Index("status"), Index("note"), Index("status", across="tenants")],
    lifecycle=Lifecycle(
        "status",
        initial=["pending"],
        moves={"pending": ["sending"], "sending": ["done", "pending"], "done": []},
    ),
    immutable=["made_at"],
)
class Order(Document, rename="camel"):
    id: str
    tenant_id: str
    made_at: datetime = NOON
    note: str = ""
    status: Literal["pending", "sending", "done"] = "pending"
    due_at: datetime | None = None
    fence: int = 0
    owner: str | None = None
    attempts: int = 0
    words: list[str] = []


@document("events/{id}", tenant="tenant_id", indexes=[Index("number")])
class Event(Document):
    id: str
    tenant_id: str
    number: int = 0


@document("tallies/{id}", tenant="tenant_id", indexes=[Index("name", "number"), Index("rest")])
class Tally(Document, rename="camel"):
    id: str
    tenant_id: str
    name: str = "ż'\"\\"
    number: int = 0
    rest: int = 0


@document("labelled/{id}", indexes=[Index("labels[]")])
class Labelled(Document):
    id: str
    labels: list[str] = []


@document("entries/{id}", append_only=True)
class Entry(Document):
    id: str
    text: str = ""


CLASSES: list[type[Document]] = [Order, Event, Tally, Labelled, Entry]
SCHEMAS = [schema_of(cls) for cls in CLASSES]
LISTED = frozenset([schema_of(Labelled)])
IDS = [f"{n:02}" for n in range(40)]

tenants = st.sampled_from(["t", "t", "t", "u"])
handles = st.sampled_from([None, None, "t", "t", "u"])
CHANGES: list[dict[str, Any]] = [
    {"status": "done", "due_at": None, "owner": None, "attempts": 1},
    {"status": "pending", "due_at": NOON, "owner": None, "words": ['"\\ż👩']},
    {"status": "sending"},
    {"attempts": 7},
    {"attempts": "seven"},
    {"attempts": Increment(2)},
    {"status": "lost"},
    {"made_at": datetime(2026, 2, 1, tzinfo=UTC)},
    {"fence": 9},
    {"note": "indexed"},
    {"note": "x" * 3_000},
    {"tenant_id": "u"},
    {"words": ["x" * 40_000]},
    {"owner": "a\0b"},
]
expectations: st.SearchStrategy[Expect] = st.sampled_from(
    [Fence(1)] * 4 + [Fence(0)] * 2 + [Fence(2), Version(0)] + [None] * 4 + [PRESENT, ABSENT]
)
# Collections without a claim, and with numbers that upserts count in.
PLAIN_CHANGES: list[dict[str, Any]] = [
    {"number": 3},
    {"number": -(2**63)},
    {"number": None},
    {"number": 2**63},
    {"number": Increment(1)},
    {"tenant_id": "u"},
]
TALLY_CHANGES: list[dict[str, Any]] = [
    {"rest": 1},
    {"rest": 2, "number": 5},
    {"number": 2**62},
    {"name": "indexed"},
]


new_orders = st.builds(
    Order,
    id=st.sampled_from(IDS),
    tenant_id=tenants,
    status=st.sampled_from(["pending"] * 5 + ["done"]),
    due_at=st.sampled_from([None, NOON, NOON]),
)
new_tallies = st.builds(
    Tally, id=st.sampled_from(IDS), tenant_id=tenants, number=st.sampled_from([0, 2**62, -(2**63)])
)
new_labels = st.builds(Labelled, id=st.sampled_from(IDS), labels=st.lists(st.sampled_from("abc"), max_size=3))
new_documents = st.one_of(
    new_orders,
    st.builds(Event, id=st.sampled_from(IDS), tenant_id=tenants, number=st.integers(0, 5)),
    new_tallies,
    new_labels,
    st.builds(Entry, id=st.sampled_from(IDS)),
)
patches = st.builds(
    lambda id, changes, expect: patch(Order, id, changes=changes, expect=expect),
    st.sampled_from(IDS), st.sampled_from(CHANGES[:4] * 4 + CHANGES), expectations,
)  # fmt: skip
plain_patches = st.builds(
    lambda cls, id, changes, expect: patch(cls, id, changes=changes, expect=expect),
    st.sampled_from([Event, Tally]), st.sampled_from(IDS), st.sampled_from(PLAIN_CHANGES),
    st.sampled_from([None, None, None, PRESENT, ABSENT, Version(0), Fence(1)]),
)  # fmt: skip
tally_patches = st.builds(
    lambda id, changes: patch(Tally, id, changes=changes),
    st.sampled_from(IDS),
    st.sampled_from(TALLY_CHANGES),
)
BY = [1, 1, 1, 1, -5, 2**61, 2**62 - 1, 2**63 - 1]
COUNTED: list[dict[str, Any]] = [
    {"number": Increment(2)}, {"number": Increment(1, at_most=2)}, {"rest": 1}, {"name": "x", "rest": 2},
]  # fmt: skip
upserts = st.builds(
    lambda id, tenant, by, field, changes: upsert(
        Tally(id=id, tenant_id=tenant, **{field: by}), changes or {field: Increment(by)}
    ),
    st.sampled_from(IDS), tenants, st.sampled_from(BY), st.sampled_from(["number", "number", "rest"]),
    st.sampled_from([None] * 4 + COUNTED),
)  # fmt: skip
writes = st.one_of(
    new_documents.map(create),
    upserts,
    patches,
    patches,
    plain_patches,
    tally_patches,
    new_documents.map(put),
    st.builds(lambda cls, id: delete(cls, id), st.sampled_from(CLASSES), st.sampled_from(IDS)),
    st.builds(lambda id: check(Event, id), st.sampled_from(IDS)),
    st.builds(lambda id: patch(Entry, id, changes={"text": "x"}), st.sampled_from(IDS)),
)


def one_each(found: list[Write]) -> tuple[Write, ...]:
    """The first write of each document: a commit writes each once."""
    return tuple({(write.schema, write.key): write for write in reversed(found)}.values())


commits = st.builds(
    lambda found, tenant, restoring: Commit(one_each(found), tenant, restoring=restoring),
    st.one_of(st.lists(writes, min_size=1, max_size=1), st.lists(writes, min_size=2, max_size=4)),
    handles, st.sampled_from([False] * 9 + [True]),
)  # fmt: skip


@st.composite
def bulk(draw: st.DrawFn, commits_min: int = MANY) -> list[Commit]:
    """Creates in such numbers that they are inserted in bulk: in many commits, or in one."""
    single = draw(st.booleans())
    count = draw(
        st.integers(WRITES_MIN, WRITES_MIN + 8) if single else st.integers(commits_min, commits_min + 40)
    )
    cls: Any = draw(st.sampled_from([Event, Event, Order, Order, Labelled, Entry]))
    owned = {"tenant_id": "t"} if cls in (Event, Order) else {}
    documents = [cls(id=f"bulk-{n:03}", **owned) for n in range(count)]
    if cls is Order:
        # Times that all share are bound once, those that differ one by one.
        times = [None, NOON, datetime(2026, 1, 2, tzinfo=UTC)]
        due = draw(st.lists(st.sampled_from(times), min_size=1, max_size=2))
        for number, one in enumerate(documents):
            one.due_at = due[number % len(due)]
    for one in draw(st.lists(st.sampled_from(documents), max_size=2)):
        fault = draw(st.sampled_from(["tenant", "state", "taken"]))
        if fault == "tenant" and isinstance(one, Event | Order):
            one.tenant_id = "u"
        elif fault == "state" and isinstance(one, Order):
            one.status = "done"
        elif fault == "taken":
            one.id = draw(st.sampled_from(IDS))
    creates, tenant = [create(one) for one in documents], draw(handles)
    if single:
        counted = draw(st.lists(upserts, min_size=4, max_size=16))
        return [Commit(one_each([*creates, *counted, *draw(st.lists(writes, max_size=2))]), tenant)]
    return [Commit((write,), tenant) for write in creates]


@st.composite
def bulks(draw: st.DrawFn) -> list[Commit]:
    """Commits of creates and counting upserts, some of which touch documents of one another."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        creates = [
            create(Event(id=f"bulk-{number}-{n}", tenant_id="t")) for n in range(draw(st.integers(1, 6)))
        ]
        found = [*creates, *draw(st.lists(upserts, max_size=3))]
        found += draw(st.sampled_from([[], [], [], [draw(writes)]]))
        made.append(Commit(one_each(found), draw(st.sampled_from([None, None, "t"]))))
    return made


@st.composite
def dispatched(draw: st.DrawFn) -> list[Commit]:
    """What a dispatcher's process commits at once: new documents of a tenant, and patches of the same fields
    by a privileged handle, some of them refused, not plain, or of the same document."""
    new = [Order(id=f"new-{n:02}", tenant_id="t", due_at=NOON) for n in range(draw(st.integers(0, 12)))]
    for one in draw(st.lists(st.sampled_from(new), max_size=1)) if new else []:
        one.id = draw(st.sampled_from(IDS))
    faulty = draw(st.booleans())
    plain: list[Expect] = [Fence(1), Fence(1), Fence(0), Version(0), None]
    found = same_fields(draw, expectations if faulty else st.sampled_from(plain), faulty=faulty)
    made = [*single([create(one) for one in new], "t"), *single(found, draw(st.sampled_from([None, "t"])))]
    return draw(st.permutations(made)) if draw(st.booleans()) else made


@st.composite
def settled(draw: st.DrawFn) -> list[Commit]:
    """What settles claimed documents: patches of the same fields, each under a fence."""
    faulty = draw(st.booleans())
    plain = st.sampled_from([Fence(1), Fence(1), Fence(1), Fence(0), Fence(2)])
    odd = st.sampled_from([Fence(1), Fence(-1), Fence(2**63), Fence(True)])
    found = same_fields(draw, odd if faulty and draw(st.booleans()) else plain, faulty=faulty)
    return single(found, draw(st.sampled_from([None, "t"])))


def same_fields(draw: st.DrawFn, expected: st.SearchStrategy[Any], *, faulty: bool) -> list[Write]:
    """Patches of the same fields, mostly each of another document."""
    once = draw(st.sampled_from([True, True, True, False]))
    ids = draw(st.lists(st.sampled_from(IDS), min_size=2, max_size=20, unique=once))
    names = draw(st.sampled_from([("status", "owner", "attempts"), ("attempts", "words"), ("note",)]))
    values: dict[str, list[Any]] = {
        "status": ["done", "pending", "pending", "sending"] + ["lost"] * faulty,
        "owner": [None] * 10 + ["a\0b"] * faulty,
        "attempts": [1, 7] * 5 + ["seven", 2**64, Increment(1)] * faulty,
        "words": [[], ["ż"]] * 5 + [["x" * 40_000]] * faulty,
        "note": ["indexed"],
    }
    return [
        patch(Order, id, changes={name: draw(st.sampled_from(values[name])) for name in names},
              expect=draw(expected))
        for id in ids
    ]  # fmt: skip


@st.composite
def accepted(draw: st.DrawFn) -> list[Commit]:
    """What a dispatcher's process commits at once where nothing is refused, of documents that exist."""
    number = draw(st.integers(0, 10**9))
    new = [Order(id=f"{number}-{n}", tenant_id="t", due_at=NOON) for n in range(draw(st.integers(0, 40)))]
    ids = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=20, unique=True))
    values = st.fixed_dictionaries(
        {"attempts": st.integers(0, 9), "words": st.lists(st.just("ż"), max_size=2)}
    )
    found = [patch(Order, id, changes=draw(values)) for id in ids]
    return [*single([create(one) for one in new], "t"), *single(found, draw(st.sampled_from([None, "t"])))]


@st.composite
def batches(draw: st.DrawFn) -> CreateBatch:
    """Documents of one class that are created together, of which some are refused, and some are the same."""
    made: st.SearchStrategy[Any] = draw(st.sampled_from([new_orders, new_orders, new_tallies, new_labels]))
    ids = draw(st.sampled_from([st.sampled_from(IDS), st.integers(0, 999).map("new-{:03}".format)]))
    documents = draw(st.lists(made, min_size=1, max_size=40))
    shared = draw(st.booleans())
    for one in documents:
        one.id = draw(ids)
        if shared and isinstance(one, Order):
            one.tenant_id, one.status, one.due_at = "t", "pending", NOON
    writes = [create(one) for one in documents]
    prepared = [write.prepared for write in writes if write.prepared is not None]
    return CreateBatch(writes[0].schema, prepared, tenant=draw(handles))


def single(found: list[Write], tenant: str | None) -> list[Commit]:
    return [Commit((write,), tenant) for write in found]


def patch_batch(commits: Sequence[Commit]) -> PatchBatch | None:
    """The commits as one batch, where a store could have been asked to settle claimed documents by them."""
    writes = [write for commit in commits for write in commit.writes]
    kinds = {(w.kind, type(w.expect), w.schema, tuple(w.changes or ())) for w in writes}
    if len(writes) > len(commits) or len(kinds) > 1 or not isinstance(writes[0].expect, Fence):
        return None
    ((_, _, schema, names),) = kinds
    return PatchBatch(
        schema, names, keys=[w.key for w in writes],
        fences=[w.expect.number for w in writes if isinstance(w.expect, Fence)],
        values=[tuple((w.changes or {}).values()) for w in writes], tenant=commits[0].tenant,
    )  # fmt: skip


def key_of(write: Write) -> str:
    return write.key


mixed = st.lists(commits, max_size=40)
every_order = st.just([Order(id=id, tenant_id="t", due_at=NOON) for id in IDS]).map(
    lambda given: single([create(one) for one in given], None)
)
orders = st.builds(
    single, st.lists(new_orders.map(create), min_size=20, max_size=40, unique_by=key_of), st.none()
)
# Of one collection; some ids are taken, some given twice, some documents another tenant's.
created = st.one_of(
    st.builds(single, st.lists(new_orders.map(create), min_size=2, max_size=40), handles),
    st.builds(single, st.lists(new_orders.map(create), min_size=2, max_size=40, unique_by=key_of), st.none()),
)
settlements = st.builds(single, st.lists(patches, min_size=15, max_size=40, unique_by=key_of), handles)
numbered = st.builds(
    single,
    st.lists(
        st.builds(Event, id=st.sampled_from(IDS), tenant_id=tenants).map(create),
        min_size=20,
        max_size=40,
        unique_by=key_of,
    ),
    st.none(),
)
# Some alone, some together, some of one document twice.
renumbered = st.builds(single, st.lists(plain_patches, min_size=1, max_size=30), handles)
tallies = st.builds(single, st.lists(upserts, min_size=20, max_size=40, unique_by=key_of), st.none())
recounted = st.builds(single, st.lists(tally_patches | upserts, min_size=1, max_size=30), handles)
rounds_of_batches = st.one_of(
    st.tuples(orders, settlements, settlements),
    st.tuples(orders, settlements, mixed, settlements),
    st.tuples(mixed, mixed),
    st.tuples(orders | mixed, bulk(), bulk(), mixed),
    st.tuples(mixed, bulk(commits_min=2), bulk(commits_min=2), settlements),
    st.tuples(bulks(), bulks(), bulks(), bulks()),
    st.tuples(numbered, renumbered, renumbered, mixed, renumbered),
    st.tuples(tallies, recounted, recounted, recounted),
)


class Pair:
    """One SQL engine with its fast paths, and a reference engine for each example."""

    def __init__(self, url: str) -> None:
        self._catalog, self.taken = Catalog(CLASSES), Counter[str]()
        self._runner = asyncio.Runner()
        self._store: Store = self._runner.run(open_store(url, CLASSES, clock=ManualClock(NOON)))
        self._runner.run(self._store.migrate())

    @property
    def engine(self) -> Engine:
        return self._store.engine

    def compare(self, rounds: Sequence[Sequence[Commit]]) -> None:
        self._runner.run(self._compare(rounds))

    async def _compare(self, rounds: Sequence[Sequence[Commit]]) -> None:
        engine, reference = self._store.engine, Reference(MemoryDatabase(), self._catalog)
        keys = {(write.schema, write.key) for commits in rounds for c in commits for write in c.writes}
        try:
            for number, commits in enumerate(rounds):
                requested = self._as_requested(commits)
                self._count(requested if isinstance(requested, PatchBatch) else commits)
                outcomes = _summary(await engine.commit(requested))
                assert outcomes == _summary(await reference.commit(list(commits)))
                found = [await _documents(one, keys) for one in (engine, reference)]
                assert found[0] == found[1]
                claims = [await _claim(one, f"worker-{number}") for one in (engine, reference)]
                assert claims[0] == claims[1]
        finally:
            cleanup = [Write("delete", schema, key) for schema, key in keys]
            await engine.commit([Commit((write,), restoring=True) for write in cleanup])

    def _as_requested(self, commits: Sequence[Commit]) -> Sequence[Commit]:
        """Return the commits as a store hands them to its engine."""
        if len({(c.tenant, c.expiring, c.restoring) for c in commits}) != 1:
            return commits
        batch = create_batch([commit.writes for commit in commits], commits[0].tenant)
        self.taken["batch of creates"] += batch is not None
        return batch or patch_batch(commits) or commits

    def _count(self, commits: Sequence[Commit]) -> None:
        independent = independent_writes(commits, LISTED)
        if isinstance(independent, ClaimedPatches):
            self.taken["claimed patches"] += 1
            return
        if isinstance(independent, NewDocuments):
            self.taken["new documents"] += 1
            self.taken["new batch"] += type(commits) is CreateBatch
            independent = {}
        patched = sum(not isinstance(one, Write) for one in independent.values())
        self.taken["permitted"] += isinstance(independent, PermittedWrites) and patched > 0
        fenced = sum(type(commits[n].writes[0].expect) is Fence for n in independent)
        self.taken["fenced patch"] += fenced
        self.taken["other blind patch"] += patched - fenced
        self.taken["create"] += len(independent) - patched
        self.taken["counting upsert"] += len(counting_upserts(commits))
        self.taken["bulk commit"] += len(bulk_commits(commits, LISTED))
        self.taken["bulk"] += len(commits) >= MANY or any(len(c.writes) >= WRITES_MIN for c in commits)

    def close(self) -> None:
        self._runner.run(self._store.close())
        self._runner.close()


def _summary(outcomes: list[Outcome]) -> list[Any]:
    return [o.code if isinstance(o, HoldfastError) else [v > 0 for v in o.versions] for o in outcomes]


async def _documents(engine: Engine, keys: set[tuple[Any, str]]) -> dict[tuple[str, str], Any]:
    found = {}
    for schema in SCHEMAS:
        mine = sorted(key for owner, key in keys if owner is schema)
        for key, snapshot in zip(mine, await engine.fetch(schema, mine) if mine else [], strict=True):
            found[schema.name, key] = snapshot and msgspec.to_builtins(snapshot.doc)
    return found


async def _claim(engine: Engine, owner: str) -> list[Any]:
    """Claim what is due, so that the next round finds fencing numbers to expect."""
    request = ClaimRequest(
        schema=schema_of(Order), now_us=to_us(NOON), lease_us=0, limit=1_000, owner=owner, tenant=None
    )
    return [(item.key, msgspec.to_builtins(item.doc)) for item in await engine.claim(request)]


@pytest.fixture(params=["sqlite", "postgres"])
def pair(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    made = Pair(request.getfixturevalue(f"{request.param}_url"))
    execute = BatchStatement.execute

    def counted(statement: BatchStatement) -> bool:
        committed = execute(statement)
        made.taken["by one statement" if committed else "refused statement"] += 1
        return committed

    monkeypatch.setattr(BatchStatement, "execute", counted)
    monkeypatch.setattr(write_connection, "REFUSED_BATCHES", 0)  # tried again for the next batch
    yield made
    made.close()


def test_fast_paths_decide_as_the_write_rules_do(pair: Pair) -> None:
    @settings(
        max_examples=150,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(rounds_of_batches)
    def compare(rounds: Sequence[list[Commit]]) -> None:
        pair.compare(rounds)

    compare()
    assert pair.taken["fenced patch"] > 100
    assert pair.taken["other blind patch"] > 100
    assert pair.taken["create"] > 100
    assert pair.taken["new documents"] > 5
    assert pair.taken["counting upsert"] > 20
    assert pair.taken["bulk"] > 10
    assert pair.taken["bulk commit"] > 50


def test_a_dispatchers_batches_are_decided_as_by_the_write_rules(pair: Pair) -> None:
    @settings(
        max_examples=50,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(
        st.tuples(orders, dispatched(), dispatched(), dispatched())
        | st.tuples(every_order, accepted(), accepted(), dispatched(), accepted())
        | st.tuples(every_order, settled(), settled(), settled())
    )
    def compare(rounds: Sequence[list[Commit]]) -> None:
        pair.compare(rounds)

    compare()
    assert pair.taken["permitted"] > 10
    assert pair.taken["claimed patches"] > 5
    if isinstance(pair.engine, SqliteEngine):
        assert pair.taken["by one statement"] > 10
        assert pair.taken["refused statement"] > 3


@pytest.mark.parametrize(
    "rounds",
    [
        st.tuples(created, created, mixed, created),
        st.tuples(orders, batches(), batches(), settlements, batches()),
    ],
)
def test_batches_of_creates_are_decided_as_by_the_write_rules(
    pair: Pair, rounds: st.SearchStrategy[Any]
) -> None:
    @settings(
        max_examples=80,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(rounds)
    def compare(rounds: Sequence[Sequence[Commit]]) -> None:
        pair.compare(rounds)

    before = pair.taken["batch of creates"]
    compare()
    assert pair.taken["batch of creates"] > before + 10


@settings(max_examples=100, deadline=None, database=None, phases=[Phase.generate])
@given(created | orders | mixed)
def test_a_batch_of_creates_has_the_commits_that_it_was_made_of(commits: list[Commit]) -> None:
    batch = create_batch([commit.writes for commit in commits], "acme")
    kinds = {(write.kind, write.schema) for commit in commits for write in commit.writes}
    may_be = all(len(commit.writes) == 1 for commit in commits) and len(kinds) == 1
    assert isinstance(batch, CreateBatch) == (may_be and next(iter(kinds))[0] == "create")
    if batch is not None:
        expected = [Commit(commit.writes, "acme") for commit in commits]
        assert list(batch) == expected == [batch[n] for n in range(len(batch))]
        assert list(batch[1:]) == expected[1:]


@given(st.lists(batches(), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None, database=None, phases=[Phase.generate])
def test_batches_of_creates_joined_are_their_commits_in_order(given_batches: list[CreateBatch]) -> None:
    alone = [commit for batch in given_batches for commit in batch]
    joined = join_commits(given_batches)
    assert list(joined) == [joined[n] for n in range(len(joined))] == alone
    assert list(joined[1:3]) == alone[1:3]
    same = len({(batch.schema, batch.tenant) for batch in given_batches}) == 1
    assert isinstance(joined, CreateBatch) is same


@pytest.mark.parametrize("expect", [Fence(1), None])
def test_some_of_the_random_patches_are_blind_patches_and_some_are_not(expect: Expect) -> None:
    made = [blind_patch(patch(Order, "x", changes=changes, expect=expect)) for changes in CHANGES]
    assert 0 < sum(one is not None for one in made) < len(CHANGES)


@settings(max_examples=200, deadline=None, database=None, phases=[Phase.generate])
@given(dispatched())
def test_patches_prepared_together_are_those_prepared_alone(commits: list[Commit]) -> None:
    writes = [commit.writes[0] for commit in commits if commit.writes[0].kind == "patch"]
    together = blind_patches(writes)
    alone = [blind_patch(write) for write in writes]
    assert together is None or together == alone
    if None not in alone:
        assert together == alone
