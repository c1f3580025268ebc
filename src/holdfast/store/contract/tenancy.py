"""A tenant's handle can't reach another's documents, whatever its arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.errors import AlreadyExistsError, HoldfastError, NotFoundError, WrongTenantError
from holdfast.store.commit import (
    ABSENT,
    PRESENT,
    Expect,
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
from holdfast.store.contract.models import Account, Card, GuestDocument, Letter, QueuedJob, Visit
from holdfast.store.contract.tenants import (
    CLASSES,
    MINE,
    OTHER,
    QUESTIONS,
    TwoTenants,
    ids_of,
    make,
    tenants_of,
)
from holdfast.store.query import Query
from holdfast.store.store import Store
from holdfast.store.transaction import Transaction
from holdfast.testing import ManualClock

Attempt = Callable[[TwoTenants], Awaitable[list[Any]]]

bounded = settings(
    max_examples=40,
    deadline=None,
    print_blob=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture, HealthCheck.differing_executors, HealthCheck.too_slow,
    ],
)  # fmt: skip


def _expectations() -> st.SearchStrategy[Callable[[TwoTenants], Expect]]:
    return st.one_of(
        st.sampled_from([None, PRESENT, ABSENT, Fence(0), Fence(1)]).map(lambda expect: lambda pair: expect),
        st.integers(0, 17).map(lambda n: lambda pair: Version(pair.versions[n])),
    )


@st.composite
def writes(draw: st.DrawFn) -> Callable[[TwoTenants], Write]:
    cls = draw(st.sampled_from(CLASSES))
    id = draw(st.sampled_from([f"{OTHER}-1", f"{OTHER}-2", f"{MINE}-1", "new"]))
    tenant, expect = draw(st.sampled_from([MINE, OTHER])), draw(_expectations())
    kind = draw(st.sampled_from(["create", "put", "patch", "delete", "check"]))
    field = draw(
        st.sampled_from([f for f in cls.__struct_fields__ if f not in ("id", "board_id", "room_id")])
    )

    def build(pair: TwoTenants) -> Write:
        document = make(cls, tenant, id, pair.clock)
        ids = ids_of(cls, tenant, id)
        if kind == "create":
            return create(document)
        if kind == "put":
            return put(document, expect(pair))
        if kind == "patch":
            value = OTHER if field == "tenant_id" else getattr(document, field)
            return patch(cls, *ids, changes={field: value}, expect=expect(pair))
        if kind == "delete":
            return delete(cls, *ids, expect=expect(pair))
        return check(cls, *ids, expect=expect(pair))

    return build


def _committing(built: list[Callable[[TwoTenants], Write]], how: str) -> Attempt:
    async def attempt(pair: TwoTenants) -> list[Any]:
        made = [build(pair) for build in built]
        if how == "commit":
            return [await pair.me.commit(*made)]
        if how == "settle":
            return list(await pair.me.settle([[write] for write in made]))

        async def act(transaction: Transaction) -> list[Any]:
            seen = [await transaction.get(w.schema.cls, *w.key.split("\x01")) for w in made]
            transaction.write(*made)
            return seen

        return await pair.me.transact(act, attempts=2, back_off_s=0.001)

    return attempt


def _reading(cls: Any, ids: list[str], tenants: list[str]) -> Attempt:
    async def attempt(pair: TwoTenants) -> list[Any]:
        wanted = [ids_of(cls, tenant, id) for tenant, id in zip(tenants, ids, strict=True)]
        return [*await pair.me.get_many(cls, wanted), await pair.me.get(cls, *wanted[0])]

    return attempt


def _asking(query: Query[Any], size: int, stolen: int | None) -> Attempt:
    async def attempt(pair: TwoTenants) -> list[Any]:
        cursor = None if stolen is None else pair.cursors[stolen % len(pair.cursors)]
        page = await pair.me.query(query.limit(size).after(cursor))
        every = [item async for item in pair.me.scan(query.limit(size))]
        assert await pair.me.count(query) == len(every)
        return [*page.items, *every]

    return attempt


def _taking(lanes: dict[str, Any]) -> Attempt:
    async def attempt(pair: TwoTenants) -> list[Any]:
        return list(await pair.me.claim_due(QueuedJob, limit=9, lease_s=1, owner=OTHER, **lanes))

    return attempt


def _expiring(cls: Any) -> Attempt:
    async def attempt(pair: TwoTenants) -> list[Any]:
        await pair.me.expire(cls)
        return []

    return attempt


def attempts() -> st.SearchStrategy[Attempt]:
    id = st.sampled_from([f"{OTHER}-1", f"{OTHER}-3", f"{MINE}-1", "new"])
    lane = st.sampled_from(["l", "", OTHER])
    return st.one_of(
        st.builds(
            _committing, st.lists(writes(), min_size=1, max_size=3),
            st.sampled_from(["commit", "settle", "transact"]),
        ),
        st.builds(
            _reading, st.sampled_from(CLASSES), st.lists(id, min_size=3, max_size=3),
            st.lists(st.sampled_from([MINE, OTHER]), min_size=3, max_size=3),
        ),
        st.builds(_asking, st.sampled_from(QUESTIONS), st.integers(1, 4), st.none() | st.integers(0, 99)),
        st.builds(_taking, st.fixed_dictionaries({}, optional={
            "per_lane": st.integers(1, 5), "after_lane": lane, "only_lanes": st.lists(lane),
            "skip_lanes": st.lists(lane),
        })),
        st.builds(_expiring, st.sampled_from([Visit, GuestDocument])),
    )  # fmt: skip


class TenancyContract:
    @bounded
    @given(tries=st.lists(attempts(), min_size=3, max_size=10))
    async def test_no_argument_reaches_another_tenants_documents(
        self, store: Store, clock: ManualClock, tries: list[Attempt]
    ) -> None:
        pair = await tenants_of(store, clock)
        for attempt in tries:
            try:
                answers = await attempt(pair)
            except HoldfastError:
                continue
            given_away = [a.doc for a in answers if isinstance(a, Snapshot) and a.doc.tenant_id != MINE]
            assert given_away == []
        assert await pair.others() == pair.before

    async def test_anothers_document_is_not_there(self, store: Store, clock: ManualClock) -> None:
        pair = await tenants_of(store, clock)
        for cls in CLASSES:
            ids = ids_of(cls, OTHER, f"{OTHER}-1")
            assert await pair.me.get(cls, *ids) is None
            assert (await pair.me.commit(delete(cls, *ids))).versions == (0,)
            await pair.me.commit(check(cls, *ids, expect=ABSENT))
            for write in [patch(cls, *ids, changes={}), delete(cls, *ids, expect=PRESENT), check(cls, *ids)]:
                with pytest.raises(NotFoundError):
                    await pair.me.commit(write)
        assert await pair.others() == pair.before

    async def test_an_id_another_tenant_has_is_taken(self, store: Store, clock: ManualClock) -> None:
        pair = await tenants_of(store, clock)
        for cls in (Account, Card, QueuedJob, Visit, GuestDocument):
            mine = make(cls, MINE, f"{OTHER}-1", clock)
            for write in [create(mine), put(mine), put(mine, ABSENT)]:
                with pytest.raises(AlreadyExistsError):
                    await pair.me.commit(write)
        assert await pair.others() == pair.before

    async def test_documents_of_another_tenant_can_not_be_written(
        self, store: Store, clock: ManualClock
    ) -> None:
        pair = await tenants_of(store, clock)
        for cls in CLASSES:
            for write in [create(make(cls, OTHER, "new", clock)), put(make(cls, OTHER, f"{OTHER}-1", clock))]:
                with pytest.raises(WrongTenantError):
                    await pair.me.commit(write)
        assert await pair.others() == pair.before
        assert await pair.other.get(Account, "new") is None

    async def test_a_handle_can_not_be_turned_into_another(self, store: Store) -> None:
        mine = store.tenant(MINE)
        assert mine.tenant(MINE).tenant_id == MINE
        with pytest.raises(WrongTenantError):
            mine.tenant(OTHER)
        with pytest.raises(WrongTenantError):
            mine.privileged()

    async def test_a_handle_of_no_tenant_reaches_no_tenants_documents(self, store: Store) -> None:
        attempts: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.get(Account, "a"), lambda: store.get_many(Account, ["a"]),
            lambda: store.query(Query(Account)), lambda: store.count(Query(Account)),
            lambda: store.commit(create(Account(id="a", tenant_id=MINE))),
            lambda: store.settle([[delete(Account, "a")]]),
            lambda: store.claim_due(QueuedJob, limit=1, lease_s=1), lambda: store.expire(Visit),
        ]  # fmt: skip
        for attempt in attempts:
            with pytest.raises(WrongTenantError):
                await attempt()
        assert await store.privileged().get(Account, "a") is None

    async def test_a_question_about_another_parent_tenant_is_refused(self, store: Store) -> None:
        with pytest.raises(WrongTenantError):
            await store.tenant(MINE).query(Query(Letter).under(OTHER))
