"""Under concurrency nothing is lost, nothing is made twice, and nothing hangs."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta

from holdfast.errors import AlreadyExistsError, HoldfastError, VersionConflictError
from holdfast.store.commit import Committed, create, delete, patch, put
from holdfast.store.contract.harness import EngineHarness
from holdfast.store.contract.models import Chore, Note, QueuedJob, Seat
from holdfast.store.query import Query
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction
from holdfast.store.transforms import Increment
from holdfast.testing import ManualClock


class ConcurrencyContract:
    async def test_no_increment_is_lost(self, store: Store) -> None:
        await store.commit(create(Note(id="n")))
        change = {"whole": Increment(1), "part": Increment(0.5)}
        versions = await asyncio.gather(*(store.commit(patch(Note, "n", changes=change)) for _ in range(30)))
        found = await store.get(Note, "n")
        assert found is not None
        assert (found.doc.whole, found.doc.part) == (30, 15.0)
        assert len({done.versions for done in versions}) == 30

    async def test_of_many_that_create_one_id_exactly_one_succeeds(self, store: Store) -> None:
        outcomes = await asyncio.gather(
            *(store.commit(create(Seat(row="a", number=1, taken_by=f"{n}"))) for n in range(20)),
            return_exceptions=True,
        )
        assert sum(isinstance(o, Committed) for o in outcomes) == 1
        assert sum(isinstance(o, AlreadyExistsError) for o in outcomes) == 19
        (winner,) = [n for n, o in enumerate(outcomes) if isinstance(o, Committed)]
        found = await store.get(Seat, "a_1")
        assert found is not None
        assert found.doc.taken_by == f"{winner}"

    async def test_of_many_that_expect_one_version_exactly_one_succeeds(self, store: Store) -> None:
        await store.commit(create(Note(id="n")))
        found = await store.get(Note, "n")
        assert found is not None
        outcomes = await asyncio.gather(
            *(store.commit(put(Note(id="n", whole=n), found.unchanged)) for n in range(20)),
            return_exceptions=True,
        )
        assert sum(isinstance(o, Committed) for o in outcomes) == 1
        assert sum(isinstance(o, VersionConflictError) for o in outcomes) == 19

    async def test_no_document_is_claimed_twice_and_none_is_left(
        self, store: Store, clock: ManualClock
    ) -> None:
        due = [Chore(id=f"{n:02}", due=clock.now() - timedelta(seconds=n)) for n in range(40)]
        await store.commit(*(create(chore) for chore in due))

        async def work() -> list[str]:
            mine: list[str] = []
            while claimed := await store.claim_due(Chore, limit=3, lease_s=60):
                mine += [s.doc.id for s in claimed]
            return mine

        taken = [id for mine in await asyncio.gather(*(work() for _ in range(6))) for id in mine]
        assert sorted(taken) == [chore.id for chore in due]

    async def test_claims_and_settlements_at_once_do_each_job_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        jobs = [QueuedJob(id=f"{n:02}", tenant_id="t", due=clock.now(), lane=f"{n % 3}") for n in range(30)]
        worker = store.privileged()
        await worker.commit(*(create(job) for job in jobs), create(Note(id="done")))

        async def work() -> None:
            while claimed := await worker.claim_due(QueuedJob, limit=4, lease_s=60, per_lane=2):
                done = {"status": "done", "due": None}
                outcomes = await worker.settle(
                    [[patch(QueuedJob, s.doc.id, changes=done, expect=s.fenced)] for s in claimed]
                )
                assert all(isinstance(outcome, Committed) for outcome in outcomes)
                await worker.commit(patch(Note, "done", changes={"whole": Increment(len(claimed))}))

        await asyncio.gather(*(work() for _ in range(4)))
        found = await store.get(Note, "done")
        assert found is not None
        assert found.doc.whole == 30
        assert await worker.count(Query(QueuedJob).where("status", "==", "done")) == 30

    async def test_transactions_at_once_keep_what_they_guard(self, store: Store) -> None:
        await store.commit(create(Note(id="a", whole=100)), create(Note(id="b", whole=0)))

        async def move_seven(transaction: Transaction) -> bool:
            a, b = await transaction.get(Note, "a"), await transaction.get(Note, "b")
            assert a is not None
            assert b is not None
            if a.doc.whole < 7:
                return False
            transaction.write(
                put(Note(id="a", whole=a.doc.whole - 7)), put(Note(id="b", whole=b.doc.whole + 7))
            )
            return True

        moved = await asyncio.gather(*(store.transact(move_seven, attempts=200) for _ in range(18)))
        found = await store.get_many(Note, ["a", "b"])
        assert [s and s.doc.whole for s in found] == [2, 98]
        assert sum(moved) == 14

    async def test_commits_over_the_same_documents_in_any_order_all_end(self, store: Store) -> None:
        ids = [f"{n}" for n in range(6)]
        await store.commit(*(create(Note(id=id)) for id in ids))
        orders = [ids[n % 6 :] + ids[: n % 6] for n in range(12)]
        await asyncio.gather(
            *(
                store.commit(*(patch(Note, id, changes={"whole": Increment(1)}) for id in order))
                for order in orders
            )
        )
        found = await store.get_many(Note, ids)
        assert [s and s.doc.whole for s in found] == [12] * 6

    async def test_readers_never_see_half_a_commit(self, store: Store) -> None:
        await store.commit(create(Note(id="a")), create(Note(id="b")))

        async def write() -> None:
            for n in range(1, 15):
                await store.commit(put(Note(id="a", whole=n)), put(Note(id="b", whole=n)))

        writing = asyncio.create_task(write())
        seen = []
        while not writing.done():
            page = await store.query(Query(Note))
            seen.append([doc.whole for doc in page.docs])
            await asyncio.sleep(0)  # an engine may answer without letting the writer run
        await writing
        assert seen
        assert all(len(set(pair)) == 1 for pair in seen)

    async def test_a_long_scan_lets_others_run(self, store: Store) -> None:
        await store.commit(*(create(Note(id=f"{n:02}")) for n in range(30)))
        scanned = 0
        seen_meanwhile: set[int] = set()

        async def watch() -> None:
            while scanned < 30:
                seen_meanwhile.add(scanned)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        async for _ in store.scan(Query(Note).limit(1)):
            scanned += 1
        await watching
        assert len(seen_meanwhile) > 10

    async def test_two_stores_on_one_place_share_every_rule(
        self, harness: EngineHarness, store: Store
    ) -> None:
        await store.commit(create(Note(id="n")))
        async with harness.open(migrate=False) as other:
            both = [store, other]
            await asyncio.gather(
                *(both[n % 2].commit(patch(Note, "n", changes={"whole": Increment(1)})) for n in range(20))
            )
            made = await asyncio.gather(
                *(both[n % 2].commit(create(Note(id="once"))) for n in range(6)), return_exceptions=True
            )
            found = await other.get(Note, "n")
        assert found is not None
        assert found.doc.whole == 20
        assert sum(isinstance(outcome, Committed) for outcome in made) == 1

    async def test_a_caller_that_gives_up_harms_no_other(self, store: Store) -> None:
        async def try_briefly(id: str) -> None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(store.commit(create(Note(id=id))), timeout=0.0005)

        await asyncio.gather(
            *(try_briefly(f"brief-{n}") for n in range(20)),
            *(store.commit(create(Note(id=f"whole-{n}"))) for n in range(20)),
        )
        found = await store.get_many(Note, [f"whole-{n}" for n in range(20)])
        assert all(found)

    async def test_closing_finishes_what_is_under_way(self, harness: EngineHarness) -> None:
        async with harness.open() as store:
            under_way = [asyncio.create_task(store.commit(create(Note(id=f"{n}")))) for n in range(10)]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*under_way, return_exceptions=True)
        async with harness.open(migrate=False) as store:
            found = await store.get_many(Note, [f"{n}" for n in range(10)])
        for outcome, kept in zip(outcomes, found, strict=True):
            assert isinstance(outcome, (Committed, HoldfastError))
            assert isinstance(outcome, Committed) == (kept is not None)

    async def test_put_and_delete_at_once_leave_one_of_their_worlds(self, store: Store) -> None:
        await asyncio.gather(
            *(store.commit(put(Note(id="n", whole=n)), put(Note(id="m", whole=n))) for n in range(10)),
            *(store.commit(delete(Note, "n"), delete(Note, "m")) for _ in range(10)),
        )
        n, m = await store.get_many(Note, ["n", "m"])
        assert (n and n.doc.whole) == (m and m.doc.whole)
