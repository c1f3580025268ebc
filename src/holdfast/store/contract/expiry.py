"""Documents past their retention are deleted, a few at a time, and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.clock import to_us
from holdfast.errors import BadQueryError, UnindexedQueryError
from holdfast.store.commit import create, patch
from holdfast.store.contract.models import Errand, GuestDocument, LogEntry, Note, Visit
from holdfast.store.query import Query
from holdfast.store.store import Store
from holdfast.testing import ManualClock


class ExpiryContract:
    async def test_documents_go_once_their_time_has_passed(self, store: Store, clock: ManualClock) -> None:
        await store.commit(
            *(create(LogEntry(id=f"{n}", at=clock.now() + timedelta(seconds=n))) for n in range(4))
        )
        clock.tick(60)
        assert await store.expire(LogEntry) == 0
        clock.tick(2)
        assert await store.expire(LogEntry) == 2
        assert [bool(s) for s in await store.get_many(LogEntry, list("0123"))] == [False, False, True, True]

    async def test_a_condition_keeps_what_does_not_meet_it(self, store: Store, clock: ManualClock) -> None:
        now_ms = to_us(clock.now()) // 1000
        visits = [Visit(id="here", tenant_id="t", seen_at_ms=now_ms)]
        visits.append(Visit(id="ended", tenant_id="u", seen_at_ms=now_ms, state="ended"))
        visits.append(Visit(id="just", tenant_id="t", seen_at_ms=now_ms + 2, state="ended"))
        await store.privileged().commit(*(create(visit) for visit in visits))
        clock.tick(3600.001)
        assert await store.privileged().expire(Visit) == 1
        left = await store.privileged().get_many(Visit, ["here", "ended", "just"])
        assert [bool(s) for s in left] == [True, False, True]

    async def test_what_is_not_finished_stays_also_when_it_is_begun_anew(
        self, store: Store, clock: ManualClock
    ) -> None:
        everybody, ids = store.privileged(), ["open", "endless", "done", "again"]
        for id in ids:
            errand = Errand(id=id, tenant_id="t", state="open" if id == "open" else "done")
            await everybody.commit(create(errand))
        for id in ("done", "again"):
            await everybody.commit(patch(Errand, id, changes={"finished_at": clock.now()}))
        await everybody.commit(patch(Errand, "again", changes={"finished_at": None}))
        clock.tick(61)
        assert await everybody.expire(Errand) == 1
        assert [bool(s) for s in await everybody.get_many(Errand, ids)] == [True, True, False, True]

    async def test_the_index_of_a_retention_finds_what_is_finished_and_no_more(
        self, store: Store, clock: ManualClock
    ) -> None:
        everybody, done = store.privileged(), Query(Errand).where("state", "==", "done")
        ends = {f"{n}": clock.now() + timedelta(seconds=n) for n in range(5)}
        await everybody.commit(create(Errand(id="endless", tenant_id="t", state="done")))
        for id, at in ends.items():
            await everybody.commit(create(Errand(id=id, tenant_id="t", state="done", finished_at=at)))
        found = done.where("finished_at", "!=", ends["2"]).order_by("-finished_at").limit(2)
        assert [one.doc.id async for one in everybody.scan(found)] == ["4", "3", "1", "0"]
        assert await everybody.count(done.where("finished_at", ">=", ends["1"])) == 4
        assert await everybody.count(done.where("finished_at", "==", ends["1"])) == 1
        for unbounded in (done.order_by("finished_at"), done.where("finished_at", "==", None)):
            with pytest.raises(UnindexedQueryError, match=r'Index\(.*"finished_at", across="tenants"'):
                await everybody.query(unbounded)

    async def test_a_tenants_handle_lets_its_own_go_alone(self, store: Store, clock: ManualClock) -> None:
        for tenant in "tu":
            visit = Visit(id=tenant, tenant_id=tenant, seen_at_ms=0, state="ended")
            await store.tenant(tenant).commit(create(visit))
        assert await store.tenant("t").expire(Visit) == 1
        assert [bool(s) for s in await store.privileged().get_many(Visit, ["t", "u"])] == [False, True]

    async def test_sub_collections_are_emptied_across_their_parents(
        self, store: Store, clock: ManualClock
    ) -> None:
        past = clock.now() - timedelta(microseconds=1)
        for room, tenant, at in [("1", "t", past), ("2", "u", past), ("2", "t", clock.now())]:
            guest = GuestDocument(room_id=room, id=tenant, tenant_id=tenant, leaves_at=at)
            await store.tenant(tenant).commit(create(guest))
        assert await store.tenant("u").expire(GuestDocument) == 1
        assert await store.privileged().expire(GuestDocument) == 1
        assert await store.tenant("t").get(GuestDocument, "2", "t") is not None

    async def test_the_limit_bounds_how_many_go_at_once(self, store: Store, clock: ManualClock) -> None:
        await store.commit(*(create(LogEntry(at=clock.now())) for _ in range(7)))
        clock.tick(61)
        assert [await store.expire(LogEntry, limit=3) for _ in range(4)] == [3, 3, 1, 0]
        assert await store.count(Query(LogEntry)) == 0

    async def test_what_is_kept_for_ever_is_not_asked(self, store: Store) -> None:
        with pytest.raises(BadQueryError):
            await store.expire(Note)
        with pytest.raises(UnindexedQueryError):
            await store.tenant("t").query(Query(Visit).where("seen_at_ms", "<", 0))
