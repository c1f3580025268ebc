"""A query that no declared index serves is refused, with the declaration that would serve it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from holdfast.errors import UnindexedQueryError
from holdfast.model import Document, Index, document
from holdfast.store.commit import create, patch
from holdfast.store.contract.harness import EngineHarness
from holdfast.store.contract.models import Errand
from holdfast.store.query import Query
from holdfast.store.store import Store

_WORD = re.compile(r'(?:(across)=)?"([^"]*)"')


def _bare(path: str, *indexes: Index) -> Any:
    """Declare the same small class with these indexes."""

    @document(path, tenant="tenant_id", indexes=indexes)
    class Plain(Document):
        box: str
        id: str
        tenant_id: str
        a: int = 0
        b: str = ""
        c: float | None = None
        labels: list[str] = msgspec.field(default_factory=list)

    return Plain


def _questions(cls: Any, *, nested: bool) -> list[tuple[Query[Any], bool]]:
    """Return queries, and whether they need a privileged handle."""
    one = Query(cls).under("x") if nested else Query(cls)
    wide = Query(cls).across_parents() if nested else Query(cls)
    asked = [
        one.where("a", "==", 1), one.order_by("-a"), one.where("a", ">", 0).order_by("-a", "b"),
        one.where("a", "==", 1).where("b", "in", ["x", "y"]).order_by("-c"), one.where("c", "!=", 0.5),
        one.where("labels", "array-contains", "l"), one.where("labels", "array-contains", "l").order_by("-a"),
        one.where("a", ">", 0).where("b", "<", "z"), one.where("b", "not-in", ["q"]).order_by("b", "-a"),
        wide.order_by("a"), wide.where("b", "==", "y").order_by("-c"),
    ]  # fmt: skip
    if not nested:
        asked.append(one)
    return [(query, False) for query in asked] + [(wide.where("b", "==", "x").order_by("-a"), True)]


def suggestion(fault: UnindexedQueryError) -> Index:
    """Parse the declaration that ends an error message."""
    _, _, text = fault.message.rpartition(": Index(")
    words = _WORD.findall(text)
    fields = [word for key, word in words if not key]
    across: Any = next((word for key, word in words if key), "nothing")
    return Index(*fields, across=across)


def _handle(store: Store, *, privileged: bool) -> Store:
    return store.privileged() if privileged else store.tenant("t")


async def _refused(store: Store, query: Query[Any], *, privileged: bool) -> Index:
    handle = _handle(store, privileged=privileged)
    with pytest.raises(UnindexedQueryError) as first:
        await handle.query(query)
    with pytest.raises(UnindexedQueryError) as second:
        await handle.count(query)
    assert (first.value.code, first.value.message) == ("unindexed_query", second.value.message)
    assert str(suggestion(first.value)) in first.value.message
    return suggestion(first.value)


class IndexContract:
    @pytest.mark.parametrize("path", ["plain/{id}", "boxes/{box}/plain/{id}"])
    async def test_adding_exactly_the_index_it_names_makes_the_question_work(
        self, harness: EngineHarness, path: str
    ) -> None:
        nested = path.startswith("boxes")
        bare = _bare(path)
        async with harness.open(classes=[bare]) as store:
            await _keep(store, bare)
            wanted = [await _refused(store, q, privileged=p) for q, p in _questions(bare, nested=nested)]
        indexed = _bare(path, *dict.fromkeys(wanted))
        async with harness.open(classes=[indexed]) as store:
            for query, privileged in _questions(indexed, nested=nested):
                page = await _handle(store, privileged=privileged).query(query)
                assert page.items, str(query.filters)

    async def test_an_index_serves_no_question_but_its_own(self, harness: EngineHarness) -> None:
        cls = _bare("plain/{id}", Index("a", "-b"))
        async with harness.open(classes=[cls]) as store:
            await _keep(store, cls)
            tenant = store.tenant("t")
            for served in [Query(cls).order_by("a", "-b"), Query(cls).order_by("-a", "b"),
                           Query(cls).where("a", "==", 1).order_by("b")]:  # fmt: skip
                assert (await tenant.query(served)).items
            refused = [
                Query(cls).order_by("a", "b"), Query(cls).order_by("b"), Query(cls).order_by("b", "a"),
                Query(cls).where("a", "==", 1), Query(cls).where("b", "==", "x"),
            ]  # fmt: skip
            for query in refused:
                await _refused(store, query, privileged=False)
            await _refused(store, Query(cls).order_by("a", "-b"), privileged=True)

    async def test_a_sparse_index_finds_all_but_what_it_leaves_out(self, store: Store) -> None:
        tenant, queued = store.tenant("t"), Query(Errand).where("queue", "==", "q").order_by("turn")
        await tenant.commit(*(create(Errand(id=f"{n}", tenant_id="t", queue="q", turn=n)) for n in range(3)))
        await tenant.commit(create(Errand(id="alone", tenant_id="t")))
        await tenant.commit(patch(Errand, "1", changes={"queue": ""}))
        await tenant.commit(patch(Errand, "alone", changes={"queue": "q", "turn": 7}))
        assert [one.doc.id async for one in tenant.scan(queued.limit(1))] == ["0", "2", "alone"]
        either = Query(Errand).where("queue", "in", ["q", "r"]).order_by("-turn")
        assert [one.id for one in (await tenant.query(either)).docs] == ["alone", "2", "0"]
        assert await tenant.sum(Query(Errand).where("queue", "==", "q"), "turn") == 9
        refused = [
            Query(Errand).where("queue", "==", "").order_by("turn"),
            Query(Errand).where("queue", "in", ["q", ""]).order_by("turn"),
            Query(Errand).where("queue", "!=", "q").order_by("queue", "turn"),
            Query(Errand).order_by("queue", "turn"),
        ]
        for query in refused:
            with pytest.raises(UnindexedQueryError):
                await tenant.query(query)

    async def test_a_sum_needs_its_field_in_the_index(self, harness: EngineHarness) -> None:
        cls = _bare("plain/{id}", Index("b"), Index("b", "a"))
        async with harness.open(classes=[cls]) as store:
            await _keep(store, cls)
            tenant = store.tenant("t")
            assert await tenant.sum(Query(cls).where("b", "==", "x"), "a") == 1
            with pytest.raises(UnindexedQueryError) as refused:
                await tenant.avg(Query(cls).where("b", "==", "x"), "c")
            assert suggestion(refused.value) == Index("b", "c")


async def _keep(store: Store, cls: Any) -> None:
    fields = {"box": "x", "tenant_id": "t", "labels": ["l"]}
    await store.tenant("t").commit(
        create(cls(id="1", a=1, b="x", c=1.5, **fields)), create(cls(id="2", a=2, b="y", c=None, **fields))
    )
