"""A commit is atomic, and made only where its preconditions hold."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec import UNSET

from holdfast.errors import (
    AlreadyExistsError,
    BadQueryError,
    IllegalMoveError,
    LeaseLostError,
    NotFoundError,
    VersionConflictError,
    WrongTenantError,
    WrongTypeError,
)
from holdfast.model.limits import INTEGER_MAX
from holdfast.store.commit import (
    ABSENT,
    PRESENT,
    Committed,
    Fence,
    Snapshot,
    Version,
    Write,
    check,
    create,
    delete,
    patch,
    put,
)
from holdfast.store.contract.harness import exact
from holdfast.store.contract.models import NOON, Account, Chore, Leaf, LogEntry, Note, Parcel, Seat, Spot
from holdfast.store.query import Query
from holdfast.store.store import Store
from holdfast.store.transforms import ArrayRemove, ArrayUnion, Increment, Maximum, Minimum

TRANSFORMS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"whole": 1}, {"whole": Increment(2)}, {"whole": 3}),
    ({"whole": 1}, {"whole": Increment(-5)}, {"whole": -4}),
    ({"part": 0.5}, {"part": Increment(0.25)}, {"part": 0.75}),
    ({"part": 0.5}, {"part": Increment(1)}, {"part": 1.5}),
    ({"mixed": None}, {"mixed": Increment(2)}, {"mixed": 2}),
    ({"mixed": 2}, {"mixed": Increment(0.5)}, {"mixed": 2.5}),
    ({"maybe": UNSET}, {"maybe": Increment()}, {"maybe": 1}),
    ({"whole": INTEGER_MAX - 1}, {"whole": Increment(1)}, {"whole": INTEGER_MAX}),
    ({"whole": 5}, {"whole": Maximum(7)}, {"whole": 7}), ({"whole": 5}, {"whole": Maximum(3)}, {"whole": 5}),
    ({"whole": 5}, {"whole": Minimum(7)}, {"whole": 5}), ({"whole": 5}, {"whole": Minimum(3)}, {"whole": 3}),
    ({"maybe": UNSET}, {"maybe": Maximum(-3)}, {"maybe": -3}),
    ({"maybe": None}, {"maybe": Minimum(3)}, {"maybe": 3}),
    ({"labels": ["a"]}, {"labels": ArrayUnion("b", "a", "b")}, {"labels": ["a", "b"]}),
    ({"labels": ["a", "b", "a"]}, {"labels": ArrayRemove("a", "x")}, {"labels": ["b"]}),
    ({"scores": [1, "1"]}, {"scores": ArrayUnion("1", 2)}, {"scores": [1, "1", 2]}),
    ({"anything": [[1]]}, {"anything": ArrayUnion([1], [2])}, {"anything": [[1], [2]]}),
    ({"spot": Spot("Rome")}, {"spot.city": "Oslo"}, {"spot": Spot("Oslo")}),
    ({"spot": Spot("Rome")}, {"spot": None}, {"spot": None}),
    ({"maybe": 3}, {"maybe": UNSET}, {"maybe": UNSET}),
    ({"at": None}, {"at": NOON, "text": "x"}, {"at": NOON, "text": "x"}),
    ({"table": {"a": 1, "b": 2}}, {"table": {"c": 3}}, {"table": {"c": 3}}),
    ({"whole": 1}, {"whole": Increment(1), "text": "x", "labels": ArrayUnion("y")},
     {"whole": 2, "text": "x", "labels": ["y"]}),
]  # fmt: skip


async def _note(store: Store, id: str = "n") -> Snapshot[Note]:
    found = await store.get(Note, id)
    assert found is not None
    return found


class CommitContract:
    async def test_a_commit_can_be_started_without_a_coroutine(self, store: Store) -> None:
        acme = store.tenant("acme")
        await acme.commit(create(Account(id="taken", tenant_id="acme", name="first")))
        started = [
            acme.start_commit(create(Account(id=id, tenant_id="acme", name="second")))
            for id in ("free", "taken", "left")
        ]
        # Nobody is told any more, and the others are.
        started[2].cancel()
        ((made,), (refused,)) = await asyncio.gather(*started[:2])
        assert isinstance(made, Committed)
        assert isinstance(refused, AlreadyExistsError)
        free, taken = await acme.get_many(Account, ["free", "taken"])
        assert free is not None
        assert taken is not None
        assert (free.version, free.doc.name, taken.doc.name) == (made.versions[0], "second", "first")
        with pytest.raises(WrongTenantError):
            store.start_commit(create(Account(id="other", tenant_id="acme", name="")))

    async def test_a_commit_that_is_cancelled_before_it_begins_keeps_no_other_waiting(
        self, store: Store
    ) -> None:
        await store.commit(create(Chore(id="before")))
        await asyncio.sleep(0)  # the engine's writer has nothing to do then
        for number in range(3):
            store.start_commit(create(Chore(id=f"left-{number}"))).cancel()
        async with asyncio.timeout(30):
            await store.commit(create(Chore(id="after")))
        assert await store.get(Chore, "after") is not None

    async def test_when_one_write_is_refused_none_lands(self, store: Store) -> None:
        await store.commit(create(Note(id="taken")))
        with pytest.raises(AlreadyExistsError):
            await store.commit(
                create(Leaf(tree="t", branch="b", id="l")),
                put(Note(id="other")),
                create(Note(id="taken", text="second")),
                create(Seat(row="a", number=1)),
            )
        assert (await store.get(Leaf, "t", "b", "l"), await store.get(Note, "other")) == (None, None)
        assert await store.get(Seat, "a_1") is None
        assert (await _note(store, "taken")).doc.text == ""

    async def test_writes_to_several_collections_land_together(self, store: Store) -> None:
        await store.commit(create(Note(id="old")))
        done = await store.commit(
            create(Note(id="new")), patch(Note, "old", changes={"text": "x"}),
            put(Seat(row="a", number=1)), create(LogEntry(at=NOON, id="e")),
        )  # fmt: skip
        assert all(version > 0 for version in done.versions)
        assert len(done.versions) == 4
        found = [await store.get(Note, "new"), await store.get(Seat, "a_1"), await store.get(LogEntry, "e")]
        assert all(found)

    async def test_a_commit_gives_the_version_each_document_then_has(self, store: Store) -> None:
        await store.commit(create(Note(id="gone")), create(Note(id="seen")))
        done = await store.commit(
            create(Note(id="n")), delete(Note, "gone"), put(Note(id="m")), check(Note, "seen")
        )
        found = await store.get_many(Note, ["n", "m"])
        assert done.versions == (found[0] and found[0].version, 0, found[1] and found[1].version, 0)

    async def test_a_commit_of_nothing_is_fine(self, store: Store) -> None:
        assert await store.commit() == Committed(())
        assert await store.settle([]) == []

    async def test_every_write_gives_a_version_never_seen_before(self, store: Store) -> None:
        seen: list[int] = []
        for write in [
            create(Note(id="n")), put(Note(id="n")), put(Note(id="n", text="x")),
            patch(Note, "n", changes={"text": "x"}), patch(Note, "n", changes={"whole": Increment(0)}),
            delete(Note, "n"), create(Note(id="n")), put(Note(id="n")), delete(Note, "n"), put(Note(id="n")),
        ]:  # fmt: skip
            seen += [v for v in (await store.commit(write)).versions if v]
        assert len(set(seen)) == len(seen) == 8

    async def test_a_version_of_a_deleted_document_is_never_good_again(self, store: Store) -> None:
        note = Note(id="n", text="same")
        await store.commit(create(note))
        before = await _note(store)
        await store.commit(delete(Note, "n"))
        await store.commit(create(note))
        with pytest.raises(VersionConflictError):
            await store.commit(put(Note(id="n", text="late"), before.unchanged))
        assert (await _note(store)).doc.text == "same"

    async def test_writing_the_same_again_is_a_write(self, store: Store) -> None:
        await store.commit(create(Note(id="n", text="x")))
        before = await _note(store)
        await store.commit(put(Note(id="n", text="x")))
        with pytest.raises(VersionConflictError):
            await store.commit(delete(Note, "n", expect=before.unchanged))

    @pytest.mark.parametrize(
        "late",
        [
            lambda expect: put(Note(id="n", text="late"), expect),
            lambda expect: patch(Note, "n", changes={"text": "late"}, expect=expect),
            lambda expect: delete(Note, "n", expect=expect),
            lambda expect: check(Note, "n", expect=expect),
        ],
        ids=["put", "patch", "delete", "check"],
    )
    async def test_a_write_that_expects_an_old_version_is_refused(self, store: Store, late: Any) -> None:
        await store.commit(create(Note(id="n")))
        before = await _note(store)
        await store.commit(late(before.unchanged))
        await store.commit(put(Note(id="n", text="between")))
        with pytest.raises(VersionConflictError):
            await store.commit(late(before.unchanged), create(Note(id="with-it")))
        assert (await _note(store)).doc.text == "between"
        assert await store.get(Note, "with-it") is None

    @pytest.mark.parametrize("expect", [PRESENT, Version(12345)], ids=["present", "version"])
    async def test_what_must_be_there_and_is_not_refuses_the_commit(self, store: Store, expect: Any) -> None:
        for write in [
            put(Note(id="n"), expect), patch(Note, "n", changes={"text": "x"}, expect=expect),
            delete(Note, "n", expect=expect), check(Note, "n", expect=expect), patch(Note, "n", changes={}),
        ]:  # fmt: skip
            with pytest.raises(NotFoundError):
                await store.commit(write, create(Note(id="with-it")))
        assert await store.get_many(Note, ["n", "with-it"]) == [None, None]

    async def test_what_must_be_absent_and_is_there_refuses_the_commit(self, store: Store) -> None:
        await store.commit(create(Note(id="n")))
        for write in [
            create(Note(id="n")), put(Note(id="n", text="x"), ABSENT), delete(Note, "n", expect=ABSENT),
            check(Note, "n", expect=ABSENT),
        ]:  # fmt: skip
            with pytest.raises(AlreadyExistsError):
                await store.commit(write)
        assert (await _note(store)).doc == Note(id="n")

    async def test_put_writes_whole_whether_there_or_not(self, store: Store) -> None:
        await store.commit(put(Note(id="n", text="a", whole=1)))
        await store.commit(put(Note(id="n", maybe=None)))
        assert (await _note(store)).doc == Note(id="n", maybe=None)
        await store.commit(put(Note(id="n"), PRESENT))
        await store.commit(put(Note(id="m"), ABSENT))

    async def test_deleting_what_is_not_there_is_fine(self, store: Store) -> None:
        assert (await store.commit(delete(Note, "n"))).versions == (0,)
        assert (await store.commit(delete(Note, "n", expect=ABSENT))).versions == (0,)

    async def test_a_check_lets_the_others_land_or_fail(self, store: Store) -> None:
        await store.commit(create(Note(id="n")))
        await store.commit(check(Note, "n"), check(Note, "x", expect=ABSENT), create(Note(id="a")))
        with pytest.raises(NotFoundError):
            await store.commit(create(Note(id="b")), check(Note, "x"))
        assert [bool(s) for s in await store.get_many(Note, ["a", "b"])] == [True, False]

    async def test_a_patch_changes_what_it_names_and_nothing_else(self, store: Store) -> None:
        before = [Note(id=f"{n:02}", blob=b"kept", **first) for n, (first, _, _) in enumerate(TRANSFORMS)]
        await store.commit(*(create(note) for note in before))
        outcomes = await store.settle(
            [[patch(Note, f"{n:02}", changes=changes)] for n, (_, changes, _) in enumerate(TRANSFORMS)]
        )
        assert [type(outcome) for outcome in outcomes] == [Committed] * len(TRANSFORMS)
        after = [
            Note(id=f"{n:02}", blob=b"kept", **{**first, **last})
            for n, (first, _, last) in enumerate(TRANSFORMS)
        ]
        assert [exact(doc) for doc in (await store.query(Query(Note))).docs] == [
            exact(note) for note in after
        ]

    async def test_a_transform_that_breaks_the_field_is_refused(self, store: Store) -> None:
        await store.commit(create(Note(id="n", whole=INTEGER_MAX, text="t", part=1e308)))
        refused_changes: list[dict[str, Any]] = [
            {"whole": Increment(1)}, {"text": Increment(1)}, {"whole": Increment(0.5)},
            {"part": Increment(1e308)}, {"labels": ArrayUnion(1)}, {"text": Maximum(1)},
        ]  # fmt: skip
        for changes in refused_changes:
            with pytest.raises(WrongTypeError) as refused:
                await store.commit(patch(Note, "n", changes=changes))
            assert (refused.value.path or "").split("[")[0] in changes
        assert (await _note(store)).doc == Note(id="n", whole=INTEGER_MAX, text="t", part=1e308)

    async def test_settling_many_commits_fails_only_those_that_must(self, store: Store) -> None:
        await store.commit(create(Note(id="n")))
        outcomes = await store.settle([
            [create(Note(id="a"))], [create(Note(id="n"))], [],
            [patch(Note, "x", changes={"text": "t"}), create(Note(id="not"))],
            [patch(Note, "n", changes={"whole": Increment(1)}), create(Note(id="b"))],
            [create(Parcel(id="o", opened_at=1, status="sent"))],
        ])  # fmt: skip
        assert [type(o) for o in outcomes] == [
            Committed, AlreadyExistsError, Committed, NotFoundError, Committed, IllegalMoveError
        ]  # fmt: skip
        found = await store.get_many(Note, ["a", "b", "not", "n"])
        assert [s and s.doc.whole for s in found] == [0, 0, None, 1]

    async def test_among_hundreds_of_new_documents_only_those_whose_id_is_taken_fail(
        self, store: Store
    ) -> None:
        orders = [Parcel(id=f"o{n:03}", opened_at=n) for n in range(300)]
        await store.commit(create(orders[7]), create(orders[299]))
        outcomes = await store.settle([[create(order)] for order in orders])
        assert [n for n, o in enumerate(outcomes) if isinstance(o, AlreadyExistsError)] == [7, 299]
        found = await store.get_many(Parcel, [order.id for order in orders])
        assert [one and one.doc.opened_at for one in found] == list(range(300))

    async def test_settled_commits_see_those_before_them(self, store: Store) -> None:
        add_one = patch(Note, "n", changes={"whole": Increment(1)})
        outcomes = await store.settle([
            [create(Note(id="n"))], [create(Note(id="n"))], [add_one], [add_one], [delete(Note, "n")],
            [add_one], [put(Note(id="n", whole=9))],
        ])  # fmt: skip
        assert [type(o) for o in outcomes] == [
            Committed, AlreadyExistsError, Committed, Committed, Committed, NotFoundError, Committed
        ]  # fmt: skip
        assert (await _note(store)).doc.whole == 9

    async def test_creates_that_are_started_together_are_each_a_commit(self, store: Store) -> None:
        await store.commit(create(Note(id="c", whole=7)))
        outcomes = await store.start_creates([Note(id=id) for id in ("a", "b", "a", "c")])
        assert [type(o) for o in outcomes] == [Committed, Committed, AlreadyExistsError, AlreadyExistsError]
        found = await store.get_many(Note, ["a", "b", "c"])
        assert [one and one.doc.whole for one in found] == [0, 0, 7]
        assert [type(o) for o in await store.start_creates([Note(id="d")])] == [Committed]
        assert await store.start_creates([]) == []
        wrong: Any = "seven"
        with pytest.raises(WrongTypeError):
            store.start_creates([Note(id="e"), Note(id="f", whole=wrong)])
        assert await store.get(Note, "e") is None

    async def test_creates_that_are_settled_are_made_or_refused_one_by_one(self, store: Store) -> None:
        await store.commit(create(Note(id="c", whole=7)))
        outcomes = await store.settle_creates([Note(id=id) for id in ("a", "b", "a", "c")])
        assert [type(o) for o in outcomes] == [Committed, Committed, AlreadyExistsError, AlreadyExistsError]
        wrong: Any = "seven"
        outcomes = await store.settle_creates([Note(id="d"), Note(id="e", whole=wrong), Note(id="f")])
        assert [type(o) for o in outcomes] == [Committed, WrongTypeError, Committed]
        found = await store.get_many(Note, "abcdef")
        assert [one and one.doc.whole for one in found] == [0, 0, 7, 0, None, 0]
        assert await store.settle_creates([]) == []

    async def test_a_commit_writes_each_document_once(self, store: Store) -> None:
        with pytest.raises(BadQueryError):
            await store.commit(put(Note(id="n")), patch(Note, "n", changes={"whole": 1}))
        assert await store.get(Note, "n") is None

    async def test_a_commit_takes_as_many_writes_as_stated_and_no_more(self, store: Store) -> None:
        most = store.capabilities.writes_max
        writes: list[Write] = [create(Seat(row="r", number=n)) for n in range(most + 1)]
        with pytest.raises(BadQueryError):
            await store.commit(*writes)
        assert await store.get(Seat, "r_0") is None
        assert len((await store.commit(*writes[:most])).versions) == most
        assert await store.get(Seat, f"r_{most - 1}") is not None

    async def test_many_new_documents_and_a_fenced_change_land_together_or_not_at_all(
        self, store: Store
    ) -> None:
        worker = store.privileged()
        await worker.commit(create(Chore(id="c", due=store.clock.now())), create(Seat(row="r", number=40)))
        (claimed,) = await worker.claim_due(Chore, limit=1, lease_s=60)
        step = patch(Chore, "c", changes={"done": 1}, expect=claimed.fenced)
        seats = [create(Seat(row="r", number=n, taken_by="x")) for n in range(100)]
        with pytest.raises(AlreadyExistsError):
            await worker.commit(step, *seats)
        lost = patch(Chore, "c", changes={"done": 2}, expect=Fence(claimed.doc.fence - 1))
        with pytest.raises(LeaseLostError):
            await worker.commit(*seats[:40], lost)
        found = [one is not None for one in await worker.get_many(Seat, [f"r_{n}" for n in range(100)])]
        assert found == [n == 40 for n in range(100)]
        assert len((await worker.commit(*seats[:40], step, *seats[41:])).versions) == 100
        found = [one is not None for one in await worker.get_many(Seat, [f"r_{n}" for n in range(100)])]
        assert all(found)
        chore = await worker.get(Chore, "c")
        assert chore is not None
        assert chore.doc.done == 1

    async def test_many_new_documents_for_another_tenant_are_refused_together(self, store: Store) -> None:
        accounts = [create(Account(id=f"{n}", tenant_id="u" if n == 30 else "t")) for n in range(60)]
        with pytest.raises(WrongTenantError):
            await store.tenant("t").commit(*accounts)
        assert await store.privileged().count(Query(Account)) == 0
        await store.privileged().commit(*accounts)
        assert await store.tenant("t").count(Query(Account)) == 59

    async def test_legal_moves_are_made_and_staying_is_always_legal(self, store: Store) -> None:
        await store.commit(create(Parcel(id="o", opened_at=1)))
        for status in ["open", "paid", "paid", "sent"]:
            await store.commit(patch(Parcel, "o", changes={"status": status, "total": Increment(1)}))
        found = await store.get(Parcel, "o")
        assert found is not None
        assert found.doc == Parcel(id="o", opened_at=1, status="sent", total=4)

    async def test_times_may_be_patched_to_the_microsecond(self, store: Store) -> None:
        await store.commit(create(Note(id="n", at=NOON)))
        later = NOON + timedelta(microseconds=1)
        await store.commit(patch(Note, "n", changes={"at": later}))
        assert (await _note(store)).doc.at == later
