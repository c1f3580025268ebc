"""Due documents are claimed in order, leased, fenced, and taken over when a worker is gone."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import (
    BadQueryError,
    LeaseLostError,
    UnknownFieldError,
    VersionConflictError,
    WrongTenantError,
    WrongTypeError,
)
from holdfast.store.commit import Committed, Fence, Snapshot, create, delete, patch, put
from holdfast.store.contract.models import Chore, Note, QueuedJob
from holdfast.store.query import Query
from holdfast.store.store import Store
from holdfast.store.transforms import Increment
from holdfast.testing import ManualClock


def job(id: str, due: datetime | None, *, lane: str = "main", tenant: str = "t") -> QueuedJob:
    return QueuedJob(id=id, tenant_id=tenant, due=due, lane=lane)


def names(claimed: list[Snapshot[Any]]) -> str:
    return " ".join(snapshot.doc.id for snapshot in claimed)


async def keep(store: Store, *jobs: QueuedJob) -> None:
    await store.privileged().commit(*(create(one) for one in jobs))


async def keep_lanes(store: Store, clock: ManualClock, lanes: dict[str, int]) -> None:
    """Create jobs due a second apart, the first lane's all before the second's."""
    jobs = [(lane, n) for lane, count in lanes.items() for n in range(count)]
    start = clock.now() - timedelta(seconds=len(jobs))
    await keep(store, *(job(f"{lane}{n}", start + timedelta(seconds=at), lane=lane)
                        for at, (lane, n) in enumerate(jobs)))  # fmt: skip


class ClaimContract:
    async def test_what_is_due_is_taken_earliest_first(self, store: Store, clock: ManualClock) -> None:
        now = clock.now()
        await keep(store, job("now", now), job("old", now - timedelta(days=1)), job("never", None),
                   job("later", now + timedelta(microseconds=1)), job("b", now - timedelta(microseconds=1)),
                   job("a", now - timedelta(microseconds=1)))  # fmt: skip
        worker = store.privileged()
        first = await worker.claim_due(QueuedJob, limit=2, lease_s=60)
        second = await worker.claim_due(QueuedJob, limit=9, lease_s=60)
        assert (names(first), names(second)) == ("old a", "b now")
        assert await worker.claim_due(QueuedJob, limit=9, lease_s=60) == []

    async def test_a_claim_leases_fences_and_names_the_worker(self, store: Store, clock: ManualClock) -> None:
        await keep(store, job("j", clock.now()))
        (claimed,) = await store.privileged().claim_due(QueuedJob, limit=1, lease_s=60.5, owner="w1")
        kept = await store.tenant("t").get(QueuedJob, "j")
        assert kept == claimed
        assert claimed.doc == QueuedJob(
            id="j", tenant_id="t", status="working", owner="w1", fence=1,
            due=clock.now() + timedelta(seconds=60.5),
        )  # fmt: skip

    async def test_the_least_a_claim_needs_is_enough(self, store: Store, clock: ManualClock) -> None:
        await store.commit(create(Chore(id="c", due=clock.now())))
        (claimed,) = await store.claim_due(Chore, limit=5, lease_s=1)
        assert claimed.doc == Chore(id="c", fence=1, due=clock.now() + timedelta(seconds=1))
        assert await store.claim_due(Chore, limit=5, lease_s=1) == []

    async def test_questions_see_what_a_claim_changed(self, store: Store, clock: ManualClock) -> None:
        await keep(store, job("a", clock.now()), job("b", None))
        working = Query(QueuedJob).where("status", "==", "working")
        assert await store.tenant("t").count(working) == 0
        (claimed,) = await store.privileged().claim_due(QueuedJob, limit=5, lease_s=1)
        assert (await store.tenant("t").query(working)).items == [claimed]

    async def test_a_lease_that_ended_is_taken_over_with_a_higher_fence(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = store.privileged()
        await keep(store, job("j", clock.now()))
        (first,) = await worker.claim_due(QueuedJob, limit=1, lease_s=10, owner="w1")
        clock.tick(9.999999)
        assert await worker.claim_due(QueuedJob, limit=1, lease_s=10, owner="w2") == []
        clock.tick(0.000001)
        (second,) = await worker.claim_due(QueuedJob, limit=1, lease_s=10, owner="w2")
        assert (first.doc.fence, second.doc.fence, second.doc.owner) == (1, 2, "w2")
        with pytest.raises(LeaseLostError):
            await worker.commit(patch(QueuedJob, "j", changes={"result": "late"}, expect=first.fenced))
        await worker.commit(patch(QueuedJob, "j", changes={"result": "mine"}, expect=second.fenced))
        kept = await worker.get(QueuedJob, "j")
        assert kept is not None
        assert kept.doc.result == "mine"

    async def test_a_fence_stays_good_through_other_writes_a_version_does_not(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = store.privileged()
        await keep(store, job("j", clock.now()))
        (claimed,) = await worker.claim_due(QueuedJob, limit=1, lease_s=10)
        await worker.commit(patch(QueuedJob, "j", changes={"result": "half"}))
        await worker.commit(put(QueuedJob(id="j", tenant_id="t", fence=1, status="done"), claimed.fenced))
        assert await worker.claim_due(QueuedJob, limit=1, lease_s=10) == []

    async def test_claimed_documents_are_settled_as_they_are_now_each_under_its_fence(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = store.privileged()
        await keep(store, *(job(f"j{n}", clock.now()) for n in range(5)))
        claimed = await worker.claim_due(QueuedJob, limit=5, lease_s=10, owner="w1")
        documents = [one.doc for one in claimed]
        await worker.commit(delete(QueuedJob, "j1"))
        for number, document in enumerate(documents):
            document.result, document.status, document.due = f"result {number}", "done", None
            document.owner = "not stored"
        documents[3].fence = 7
        outcomes = await worker.settle_claimed(documents, "result", "status", "due")
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds == [Committed, LeaseLostError, Committed, LeaseLostError, Committed]
        kept = await worker.get_many(QueuedJob, [one.id for one in documents])
        assert [one and (one.doc.result, one.doc.status, one.doc.owner, one.doc.due) for one in kept] == [
            ("result 0", "done", "w1", None), None, ("result 2", "done", "w1", None),
            ("", "working", "w1", clock.now() + timedelta(seconds=10)), ("result 4", "done", "w1", None),
        ]  # fmt: skip
        assert [o.versions for o in outcomes if isinstance(o, Committed)] == [
            (one.version,) for one in kept if one is not None and one.doc.status == "done"
        ]

    async def test_a_settled_field_is_checked_as_in_a_patch(self, store: Store, clock: ManualClock) -> None:
        worker = store.privileged()
        await keep(store, *(job(f"j{n}", clock.now()) for n in range(3)))
        documents = [one.doc for one in await worker.claim_due(QueuedJob, limit=3, lease_s=10)]
        documents[1].result = 7  # type: ignore[assignment]
        outcomes = await worker.settle_claimed(documents, "result")
        assert [type(outcome) for outcome in outcomes] == [Committed, WrongTypeError, Committed]
        assert await worker.settle_claimed(list[QueuedJob](), "result") == []
        with pytest.raises(UnknownFieldError):
            await worker.settle_claimed(documents, "outcome")
        with pytest.raises(WrongTenantError):
            await store.settle_claimed(documents, "result")
        with pytest.raises(BadQueryError, match="no claim"):
            await store.settle_claimed([Note(id="n")], "text")
        with pytest.raises(BadQueryError, match="one class"):
            await worker.settle_claimed([documents[0], Chore(id="c")], "due")
        # Another tenant's documents are missing to a tenant's handle.
        (lost, *_) = await store.tenant("other").settle_claimed(documents, "result")
        assert isinstance(lost, LeaseLostError)

    async def test_a_claim_makes_versions_read_before_it_old(self, store: Store, clock: ManualClock) -> None:
        worker = store.privileged()
        await keep(store, job("j", clock.now()))
        before = await worker.get(QueuedJob, "j")
        assert before is not None
        await worker.claim_due(QueuedJob, limit=1, lease_s=10)
        with pytest.raises(VersionConflictError):
            await worker.commit(delete(QueuedJob, "j", expect=before.unchanged))

    async def test_writing_back_an_old_copy_never_turns_the_fence_back(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = store.privileged()
        await keep(store, job("j", clock.now()))
        old = await worker.get(QueuedJob, "j")
        assert old is not None
        await worker.claim_due(QueuedJob, limit=1, lease_s=10)
        for write in (put(old.doc), patch(QueuedJob, "j", changes={"fence": 0})):
            with pytest.raises(LeaseLostError):
                await worker.commit(write)
        kept = await worker.get(QueuedJob, "j")
        assert kept is not None
        assert kept.doc.fence == 1

    async def test_a_fence_on_what_is_gone_or_never_claimed_is_lost(self, store: Store) -> None:
        with pytest.raises(LeaseLostError):
            await store.commit(patch(Chore, "c", changes={"done": 1}, expect=Fence(1)))
        await store.commit(create(Chore(id="c")))
        with pytest.raises(LeaseLostError):
            await store.commit(delete(Chore, "c", expect=Fence(1)))
        assert await store.get(Chore, "c") is not None

    async def test_settling_a_batch_loses_only_what_others_took(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker = store.privileged()
        await keep(store, *(job(id, clock.now()) for id in "abc"))
        claimed = await worker.claim_due(QueuedJob, limit=3, lease_s=10)
        clock.tick(10)
        await worker.claim_due(QueuedJob, limit=1, lease_s=10, owner="thief")
        done = {"status": "done", "due": None}
        outcomes = await worker.settle(
            [
                [patch(QueuedJob, s.doc.id, changes=done, expect=s.fenced), put(Note(id=s.doc.id))]
                for s in claimed
            ]
        )
        assert [type(outcome) for outcome in outcomes] == [LeaseLostError, Committed, Committed]
        assert [bool(s) for s in await store.get_many(Note, ["a", "b", "c"])] == [False, True, True]

    async def test_no_lane_gets_more_than_its_share(self, store: Store, clock: ManualClock) -> None:
        await keep_lanes(store, clock, {"a": 5, "b": 1, "c": 3})
        worker = store.privileged()
        taken = await worker.claim_due(QueuedJob, limit=10, lease_s=60, per_lane=2)
        assert names(taken) == "a0 a1 b0 c0 c1"
        assert names(await worker.claim_due(QueuedJob, limit=10, lease_s=60, per_lane=2)) == "a2 a3 c2"

    async def test_lanes_take_turns_from_where_the_last_claim_ended(
        self, store: Store, clock: ManualClock
    ) -> None:
        await keep_lanes(store, clock, {"a": 3, "b": 3, "c": 3})
        worker = store.privileged()
        turns = []
        for after in [None, "b", "a", "c", "zzz"]:
            taken = await worker.claim_due(QueuedJob, limit=2, lease_s=60, per_lane=1, after_lane=after)
            turns.append(names(taken))
        assert turns == ["a0 b0", "a1 c0", "b1 c1", "a2 b2", "c2"]

    async def test_chosen_lanes_are_asked_in_their_order_whatever_is_due_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        jobs = [job("late", clock.now(), lane="a"), job("early", clock.now() - timedelta(hours=1), lane="b")]
        await keep(store, *jobs)
        worker = store.privileged()
        taken = await worker.claim_due(QueuedJob, limit=1, lease_s=60, only_lanes=["b", "a"])
        assert [one.doc.id for one in taken] == ["late"]
        taken = await worker.claim_due(QueuedJob, limit=1, lease_s=60, skip_lanes=["c"])
        assert [one.doc.id for one in taken] == ["early"]

    async def test_lanes_are_left_alone_or_asked_alone(self, store: Store, clock: ManualClock) -> None:
        await keep_lanes(store, clock, {"a": 2, "b": 2, "c": 2})
        worker = store.privileged()
        assert (
            names(await worker.claim_due(QueuedJob, limit=1, lease_s=60, only_lanes=["c", "nobody"])) == "c0"
        )
        assert await worker.claim_due(QueuedJob, limit=9, lease_s=60, only_lanes=[]) == []
        assert names(await worker.claim_due(QueuedJob, limit=2, lease_s=60, skip_lanes=["a"])) == "b0 b1"
        both = await worker.claim_due(QueuedJob, limit=9, lease_s=60, only_lanes=["a", "c"], skip_lanes=["a"])
        assert names(both) == "c1"
        assert names(await worker.claim_due(QueuedJob, limit=9, lease_s=60, skip_lanes=["b", "c"])) == "a0 a1"

    async def test_lanes_with_a_prefix_take_turns_among_themselves(
        self, store: Store, clock: ManualClock
    ) -> None:
        await keep_lanes(store, clock, {"a": 2, "b:": 1, "b:x": 3, "b:y": 3, "b;": 1, "bb": 1})
        worker, after, turns = store.privileged(), None, list[str]()
        for after in (None, "b:x", "b:y", "zzz", None):
            taken = await worker.claim_due(
                QueuedJob, limit=1, lease_s=60, per_lane=1, after_lane=after, lane_prefix="b:"
            )
            turns.append(names(taken))
        assert turns == ["b:x0", "b:y0", "b:x1", "b:x2", "b:y1"]
        taken = await worker.claim_due(
            QueuedJob, limit=9, lease_s=60, lane_prefix="b:", skip_lanes=["b:x"], after_lane="b:y"
        )
        assert names(taken) == "b:y2"
        assert await worker.claim_due(QueuedJob, limit=9, lease_s=60, lane_prefix="c:") == []
        assert len(await worker.claim_due(QueuedJob, limit=9, lease_s=60)) == 5

    async def test_a_tenants_worker_takes_its_own_alone(self, store: Store, clock: ManualClock) -> None:
        now = clock.now()
        await keep(store, job("t1", now, tenant="t"), job("u1", now, tenant="u"), job("u2", now, tenant="u"))
        assert names(await store.tenant("u").claim_due(QueuedJob, limit=9, lease_s=60)) == "u1 u2"
        assert names(await store.tenant("t").claim_due(QueuedJob, limit=9, lease_s=60, per_lane=5)) == "t1"

    async def test_what_is_due_is_counted_up_to_a_limit(self, store: Store, clock: ManualClock) -> None:
        now, later = clock.now(), clock.now() + timedelta(seconds=9)
        worker = store.privileged()
        assert await worker.count_due(QueuedJob) == 0
        await keep(store, job("a", now), job("b", now, tenant="u"), job("c", None), job("d", later))
        assert await worker.count_due(QueuedJob) == 2
        assert await worker.count_due(QueuedJob, limit=1) == 1
        await worker.claim_due(QueuedJob, limit=1, lease_s=60)
        assert await worker.count_due(QueuedJob) == 1
        with pytest.raises(BadQueryError):
            await store.tenant("t").count_due(QueuedJob)

    async def test_what_a_worker_that_is_gone_has_claimed_is_due_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        worker, now = store.privileged(), clock.now()
        soon = now + timedelta(seconds=5)
        waiting = QueuedJob(id="waiting", tenant_id="t", due=soon, owner="gone.1")
        await keep(store, *(job(id, now, tenant=id) for id in "abc"), job("later", soon), waiting)
        (gone,) = await worker.claim_due(QueuedJob, limit=1, lease_s=60, owner="gone.1")
        (other,) = await worker.claim_due(QueuedJob, limit=1, lease_s=60, owner="gone.2")
        (alive,) = await worker.claim_due(QueuedJob, limit=1, lease_s=60, owner="gone-not.1")
        assert await worker.release_claims(QueuedJob, "gone.") == 2
        assert await worker.release_claims(QueuedJob, "gone.") == 0
        taken = await worker.claim_due(QueuedJob, limit=9, lease_s=60, owner="next.1")
        assert names(taken) == names([gone, other])
        # Where it was only paused, the fencing number refuses it; who is alive is not touched.
        with pytest.raises(LeaseLostError):
            await worker.commit(patch(QueuedJob, "a", changes={"result": "late"}, expect=gone.fenced))
        await worker.commit(patch(QueuedJob, "c", changes={"result": "done"}, expect=alive.fenced))

    async def test_claims_are_released_across_tenants_by_a_named_owner_only(self, store: Store) -> None:
        with pytest.raises(BadQueryError, match="privileged"):
            await store.tenant("t").release_claims(QueuedJob, "gone.")
        with pytest.raises(BadQueryError, match="owner"):
            await store.privileged().release_claims(Chore, "gone.")

    async def test_the_next_due_time_is_the_earliest_of_ones_own(
        self, store: Store, clock: ManualClock
    ) -> None:
        later, sooner = clock.now() + timedelta(seconds=9), clock.now() - timedelta(microseconds=1)
        assert await store.privileged().next_due(QueuedJob) is None
        await keep(store, job("a", later), job("b", sooner, tenant="u"), job("c", None))
        assert [await store.tenant(t).next_due(QueuedJob) for t in "tuv"] == [later, sooner, None]
        assert await store.privileged().next_due(QueuedJob) == sooner
        (taken,) = await store.privileged().claim_due(QueuedJob, limit=9, lease_s=60)
        assert await store.privileged().next_due(QueuedJob) == later
        await store.privileged().commit(delete(QueuedJob, "a"))
        assert await store.privileged().next_due(QueuedJob) == taken.doc.due

    async def test_the_next_due_time_after_a_time_leaves_out_what_is_due(
        self, store: Store, clock: ManualClock
    ) -> None:
        now = clock.now()
        past, soon, later = (now + timedelta(seconds=s) for s in (-9, 0.000001, 9))
        await keep(store, job("a", past), job("b", now), job("c", later, tenant="u"))
        assert await store.privileged().next_due(QueuedJob, after=now) == later
        await keep(store, job("d", soon, tenant="u"))
        assert await store.privileged().next_due(QueuedJob, after=now) == soon
        assert await store.tenant("t").next_due(QueuedJob, after=now) is None

    async def test_what_is_made_due_again_is_claimed_again(self, store: Store, clock: ManualClock) -> None:
        await store.commit(create(Chore(id="c")))
        assert await store.claim_due(Chore, limit=1, lease_s=1) == []
        await store.commit(patch(Chore, "c", changes={"due": clock.now(), "done": Increment()}))
        (claimed,) = await store.claim_due(Chore, limit=1, lease_s=1)
        assert (claimed.doc.done, claimed.doc.fence) == (1, 1)

    async def test_a_claim_that_asks_for_nothing_is_refused(self, store: Store) -> None:
        wrong: list[dict[str, Any]] = [
            {"limit": 0},
            {"limit": -1},
            {"lease_s": 0},
            {"lease_s": -1},
            {"per_lane": 0},
        ]
        for asked in wrong:
            with pytest.raises(BadQueryError):
                await store.privileged().claim_due(QueuedJob, **{"limit": 1, "lease_s": 1, **asked})
        unlaned: list[dict[str, Any]] = [
            {"per_lane": 1},
            {"after_lane": "a"},
            {"skip_lanes": ["a"]},
            {"only_lanes": ["a"]},
            {"lane_prefix": "a"},
        ]
        for lanes in unlaned:
            with pytest.raises(BadQueryError):
                await store.claim_due(Chore, **{"limit": 1, "lease_s": 1, **lanes})
        with pytest.raises(BadQueryError):
            await store.claim_due(Note, limit=1, lease_s=1)
