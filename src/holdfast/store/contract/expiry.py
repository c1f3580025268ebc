"""Documents past their retention are deleted, a few at a time, and no others."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.clock import to_us
from holdfast.errors import BadQueryError, UnindexedQueryError
from holdfast.store.commit import create
from holdfast.store.contract.models import GuestDocument, LogEntry, Note, Visit
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
