"""Queries have the same results in the same order on every engine."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import UNSET

from holdfast.errors import BadQueryError, UnindexedQueryError
from holdfast.model.limits import ALTERNATIVES_MAX, INTEGER_MAX, INTEGER_MIN
from holdfast.store.commit import create, delete, patch, put
from holdfast.store.contract.models import NOON, Account, Leaf, Note, Spot
from holdfast.store.query import Query, QueryPage
from holdfast.store.store import Store

NOTES = [
    Note(id="a", text="ant", whole=1, part=0.5, flag=True, mixed=None, labels=["x", "y"], maybe=5, at=NOON),
    Note(id="b", text="Bee", whole=2, part=-0.5, mixed=False, labels=["y"], moment=NOON, blob=b"\x00\xff"),
    Note(id="c", text="żuk", whole=2, part=1e300, flag=True, mixed=2, labels=[], maybe=None, moment=7),
    Note(id="d", text="", whole=-7, part=5e-324, mixed=2.5, scores=[1, "1", None], spot=Spot("Rome")),
    Note(id="e", text="ant", whole=INTEGER_MAX, part=-1e300, flag=True, mixed="", scores=[1.0, True]),
    Note(id="f", text="\U0001f41c", whole=INTEGER_MIN, mixed="2", labels=["x"], blob=b"\xff"),
    Note(id="g", text="\uff5e", whole=2**53 + 1, mixed=-1e300, moment=True, spot=Spot("Oslo")),
    Note(id="h", text="e\u0301", whole=2**53, mixed=2**53 + 1, at=NOON + timedelta(microseconds=1)),
    Note(id="i", text="é", whole=0, mixed=2.0**53, moment=None, blob=b"\x00", at=NOON - timedelta(days=1)),
]

ASKED: list[tuple[Query[Note], str]] = [
    (Query(Note), "abcdefghi"),
    (Query(Note).where("text", "==", "ant"), "ae"),
    (Query(Note).where("text", "==", "é"), "i"),
    (Query(Note).where("text", "in", ["ant", "Bee", "nobody"]), "abe"),
    (Query(Note).order_by("text"), "dbaehicgf"),
    (Query(Note).order_by("-text"), "fgciheabd"),
    (Query(Note).where("text", ">", "ant").order_by("text"), "hicgf"),
    (Query(Note).where("text", ">=", "ant").where("text", "<", "é").order_by("text"), "aeh"),
    (Query(Note).where("text", "!=", "ant"), "dbhicgf"),
    (Query(Note).where("text", "not-in", ["ant", "", "zzz"]).order_by("-text"), "fgcihb"),
    (Query(Note).order_by("whole"), "fdiabchge"),
    (Query(Note).where("whole", ">", 2**53), "ge"),
    (Query(Note).where("whole", "<", INTEGER_MAX).order_by("-whole"), "ghcbaidf"),
    (Query(Note).where("whole", "==", 2**53 + 1), "g"),
    (Query(Note).where("whole", "in", [2, INTEGER_MIN]), "bcf"),
    (Query(Note).where("whole", "!=", 2).order_by("whole"), "fdiahge"),
    (Query(Note).order_by("part"), "ebfghidac"),
    (Query(Note).where("part", ">", 0), "dac"),
    (Query(Note).where("part", "==", -0.0), "fghi"),
    (Query(Note).where("part", ">=", -0.0).where("part", "<", 0.5), "fghid"),
    (Query(Note).where("flag", "==", True), "ace"),
    (Query(Note).where("flag", "!=", True), "bdfghi"),
    (Query(Note).where("at", "==", None), "bcdefg"),
    (Query(Note).where("at", ">=", NOON), "ah"),
    (Query(Note).where("at", "!=", NOON), "ih"),
    (Query(Note).order_by("-at"), "haigfedcb"),
    (Query(Note).order_by("blob").where("blob", "!=", b""), "ibf"),
    (Query(Note).where("blob", ">", b"\x00"), "bf"),
    (Query(Note).order_by("mixed"), "abgcdihef"),
    (Query(Note).order_by("-mixed"), "fehidcgba"),
    (Query(Note).where("mixed", "==", None), "a"),
    (Query(Note).where("mixed", "==", 2), "c"),
    (Query(Note).where("mixed", "==", 2.0), "c"),
    (Query(Note).where("mixed", "==", "2"), "f"),
    (Query(Note).where("mixed", "==", False), "b"),
    (Query(Note).where("mixed", "==", 0), ""),
    (Query(Note).where("mixed", "in", [0, False, 2, True, 1]), "bc"),
    (Query(Note).where("mixed", ">", 2), "dih"),
    (Query(Note).where("mixed", ">", 2.0**53), "h"),
    (Query(Note).where("mixed", "<", "z"), "ef"),
    (Query(Note).where("mixed", "<=", True), "b"),
    (Query(Note).where("mixed", "!=", 2), "bgdihef"),
    (Query(Note).where("mixed", "not-in", [2, "2", False]).order_by("-mixed"), "ehidg"),
    (Query(Note).order_by("moment"), "adefhigcb"),
    (Query(Note).where("moment", "<", NOON + timedelta(days=1)), "b"),
    (Query(Note).where("moment", "!=", 0), "gcb"),
    (Query(Note).order_by("maybe"), "ca"),
    (Query(Note).where("maybe", "==", None), "c"),
    (Query(Note).where("maybe", "!=", 4), "a"),
    (Query(Note).order_by("spot.city"), "gd"),
    (Query(Note).where("spot.city", "==", "Rome"), "d"),
    (Query(Note).where("labels", "array-contains", "x"), "af"),
    (Query(Note).where("labels", "array-contains", "x").order_by("-whole"), "af"),
    (Query(Note).where("labels", "array-contains", "y").order_by("-whole"), "ba"),
    (Query(Note).where("labels", "array-contains", "y").where("whole", ">", 1).order_by("-whole"), "b"),
    (Query(Note).where("scores", "array-contains", 1), "de"),
    (Query(Note).where("scores", "array-contains", "1"), "d"),
    (Query(Note).where("scores", "array-contains", True), "e"),
    (Query(Note).where("flag", "==", True).order_by("whole"), "ace"),
    (Query(Note).where("flag", "==", True).order_by("-whole"), "eca"),
    (Query(Note).where("flag", "in", [True, False]).order_by("whole"), "fdiabchge"),
    (Query(Note).where("flag", "==", True).where("whole", "<", 3), "ac"),
    (Query(Note).where("text", "==", "ant").order_by("-whole"), "ea"),
    (Query(Note).where("text", "in", ["ant", "é"]).where("whole", ">=", 0).order_by("-whole"), "eai"),
    (Query(Note).order_by("text", "-whole"), "dbeahicgf"),
    (Query(Note).order_by("-text", "whole"), "fgcihaebd"),
    (Query(Note).where("whole", ">", 0).where("part", ">", 0).order_by("whole"), "ac"),
    (Query(Note).where("whole", ">", 0).where("part", "!=", 0.5).order_by("whole"), "bchge"),
    (Query(Note).where("text", ">", "a").where("part", "<", 1).order_by("text", "part"), "eahigf"),
    (Query(Note).where("text", "!=", "ant").where("part", "not-in", [0, 5e-324]).order_by("text"), "bc"),
    (Query(Note).where("flag", "==", False).where("mixed", ">", 0).order_by("mixed", "-text"), "dih"),
    (Query(Note).where("flag", "==", False).order_by("-mixed", "text"), "fhidgb"),
]

LEAVES = [
    ("t", "a", "x"),
    ("t", "a-b", "x"),
    ("t", "a.b", "x"),
    ("t", "aa", "x"),
    ("t-", "a", "x"),
    ("t", "a", "y"),
]


def asked_for(case: Any) -> str:
    """Return a query's name for a test."""
    if not isinstance(case, Query):
        return "" if isinstance(case, str) else repr(case)
    parts = [f"{f.field} {f.operator} {str(f.value)[:12]}" for f in case.filters]
    return " and ".join(parts) + (f" by {','.join(case.order)}" if case.order else "")


def ids(page: QueryPage[Note]) -> str:
    return "".join(doc.id for doc in page.docs)


async def keep_notes(store: Store) -> None:
    await store.commit(*(create(note) for note in NOTES))


class QueryContract:
    @pytest.fixture
    async def notes(self, store: Store) -> Store:
        await keep_notes(store)
        return store

    async def test_each_question_finds_exactly_its_documents_in_order(self, notes: Store) -> None:
        found = {asked_for(query): ids(await notes.query(query)) for query, _ in ASKED}
        assert found == {asked_for(query): answer for query, answer in ASKED}

    @pytest.mark.parametrize("size", [1, 2, 3])
    async def test_pages_put_together_are_the_whole_answer(self, notes: Store, size: int) -> None:
        for query, answer in ASKED:
            paged = [item.doc.id async for item in notes.scan(query.limit(size))]
            assert ("".join(paged), asked_for(query)) == (answer, asked_for(query))

    @pytest.mark.parametrize("size", [1, 4, 100])
    async def test_fields_by_themselves_are_those_of_the_documents(self, notes: Store, size: int) -> None:
        for query in (
            Query(Note),
            Query(Note).order_by("-whole"),
            Query(Note).order_by("at"),
            Query(Note).where("flag", "==", True).order_by("whole"),
            Query(Note).where("text", "in", ["ant", "é"]).order_by("-part"),
        ):
            expected = [(n.id, n.text, n.at, n.flag) for n in (await notes.query(query)).docs]
            pages = [rows async for rows in notes.select(query.limit(size), "text", "at", "flag")]
            assert [row for rows in pages for row in rows] == expected
            assert all(len(rows) <= size for rows in pages)

    async def test_a_field_that_no_index_holds_is_not_read_by_itself(self, notes: Store) -> None:
        for field, error in (("anything", UnindexedQueryError), ("mixed", BadQueryError)):
            with pytest.raises(error):
                await anext(notes.select(Query(Note), field))
        with pytest.raises(BadQueryError):
            await anext(notes.select(Query(Note).order_by("mixed"), "text"))

    async def test_counts_count_what_the_question_finds(self, notes: Store) -> None:
        found = {asked_for(query): await notes.count(query) for query, _ in ASKED}
        assert found == {asked_for(query): len(answer) for query, answer in ASKED}

    async def test_the_last_page_has_no_cursor_unless_it_is_full(self, notes: Store) -> None:
        pages = [await notes.query(Query(Note).order_by("whole").limit(n)) for n in (8, 9, 10)]
        assert [page.cursor is None for page in pages] == [False, False, True]
        last = await notes.query(Query(Note).order_by("whole").limit(9).after(pages[1].cursor))
        assert (last.items, last.cursor) == ([], None)

    async def test_a_page_found_and_a_document_fetched_are_the_same(self, notes: Store) -> None:
        page = await notes.query(Query(Note).order_by("mixed"))
        fetched = await notes.get_many(Note, [item.doc.id for item in page.items])
        assert page.items == fetched

    async def test_documents_added_or_removed_between_pages_move_no_others(self, store: Store) -> None:
        await store.commit(*(create(Note(id=f"{n:02}", whole=n)) for n in range(0, 20, 2)))
        query = Query(Note).order_by("whole").limit(4)
        first = await store.query(query)
        await store.commit(
            create(Note(id="new-1", whole=1)),
            create(Note(id="new-7", whole=7)),
            create(Note(id="05", whole=6)),
        )
        second = await store.query(query.after(first.cursor))
        assert [d.id for d in first.docs + second.docs] == ["00", "02", "04", "06", "new-7", "08", "10", "12"]

    async def test_a_cursor_goes_on_though_its_document_is_gone(self, notes: Store) -> None:
        query = Query(Note).order_by("-whole").limit(3)
        first = await notes.query(query)
        await notes.commit(delete(Note, first.docs[-1].id), delete(Note, "c"))
        assert ids(first) + ids(await notes.query(query.after(first.cursor))) == "egh" + "bai"

    async def test_ties_are_broken_by_id_in_the_last_direction(self, store: Store) -> None:
        await store.commit(*(create(Note(id=id, text=text)) for id, text in zip("cabd", "xxyy", strict=True)))
        assert ids(await store.query(Query(Note).order_by("text"))) == "acbd"
        assert ids(await store.query(Query(Note).order_by("-text"))) == "dbca"
        assert [i.doc.id async for i in store.scan(Query(Note).order_by("-text").limit(1))] == list("dbca")

    async def test_the_answer_follows_every_write(self, notes: Store) -> None:
        by_label = Query(Note).where("labels", "array-contains", "x")
        by_maybe = Query(Note).order_by("maybe")
        await notes.commit(patch(Note, "a", changes={"labels": ["z"], "maybe": UNSET}))
        await notes.commit(put(Note(id="b", labels=["x", "x"], maybe=1)), delete(Note, "c"))
        assert [ids(await notes.query(q)) for q in (by_label, by_maybe)] == ["bf", "b"]
        assert await notes.count(by_label) == 2

    async def test_totals_are_what_adding_up_the_documents_gives(self, notes: Store) -> None:
        for query in (
            Query(Note),
            Query(Note).order_by("-whole").limit(2),
            Query(Note).where("flag", "==", True).order_by("whole"),
            Query(Note).where("text", "in", ["ant", "é"]).order_by("-part"),
            Query(Note).where("text", "==", "nowhere"),
        ):
            found = [item.doc async for item in notes.scan(query)]
            for by in (("flag",), ("text", "flag"), ("at",), ()):
                expected: dict[tuple[Any, ...], tuple[int, int]] = {}
                for note in found:
                    count, total = expected.get(values := tuple(getattr(note, n) for n in by), (0, 0))
                    expected[values] = count + 1, total + note.whole
                rows = await notes.totals(query, *by, of="whole")
                assert {row[:-2]: row[-2] for row in rows} == {v: count for v, (count, _) in expected.items()}
                assert {row[:-2]: row[-1] for row in rows} == {
                    values: total if INTEGER_MIN <= total <= INTEGER_MAX else float(total)
                    for values, (_, total) in expected.items()
                }
                counted = await notes.totals(query, *by)
                assert {row[:-2]: (row[-2], row[-1]) for row in counted} == {
                    values: (count, 0) for values, (count, _) in expected.items()
                }

    async def test_totals_keep_to_whole_numbers_while_they_fit(self, store: Store) -> None:
        most = [("a", 2**53 + 1), ("a", 2), ("b", INTEGER_MAX), ("b", INTEGER_MAX)]
        await store.commit(*(create(Note(id=f"{n}", text=t, whole=w)) for n, (t, w) in enumerate(most)))
        rows = {row[0]: row[1:] for row in await store.totals(Query(Note), "text", of="whole")}
        assert rows["a"] == (2, 2**53 + 3)
        assert rows["b"] == (2, pytest.approx(2 * INTEGER_MAX))
        assert isinstance(rows["a"][1], int)

    async def test_totals_refuse_what_no_index_holds_and_what_is_no_number(self, notes: Store) -> None:
        for by, of, error in (
            ("anything", None, UnindexedQueryError),
            ("mixed", None, BadQueryError),
            ("text", "flag", BadQueryError),
            ("text", "anything", UnindexedQueryError),
        ):
            with pytest.raises(error):
                await notes.totals(Query(Note), by, of=of)

    async def test_a_tenants_totals_leave_others_out(self, store: Store) -> None:
        for tenant, id, balance in [("t", "1", 5), ("u", "2", 3), ("t", "3", 1), ("u", "4", 9)]:
            account = Account(id=id, tenant_id=tenant, name="n", balance=balance)
            await store.tenant(tenant).commit(create(account))
        query = Query(Account).order_by("balance")
        handles = [store.tenant("t"), store.tenant("u"), store.privileged()]
        assert [await handle.totals(query, "name", of="balance") for handle in handles] == [
            [("n", 2, 6)], [("n", 2, 12)], [("n", 4, 18)],
        ]  # fmt: skip

    async def test_sums_and_averages_are_exact(self, store: Store) -> None:
        numbers = [(2**53 + 1, 0.5), (1, 0.25), (-3, -8.0)]
        await store.commit(*(create(Note(id=f"{n}", whole=w, part=p)) for n, (w, p) in enumerate(numbers)))
        assert await store.sum(Query(Note), "whole") == 2**53 - 1
        assert await store.sum(Query(Note).where("whole", "<", 5), "whole") == -2
        assert await store.sum(Query(Note), "part") == -7.25
        assert await store.avg(Query(Note).where("whole", "<", 5), "whole") == -1.0
        assert await store.avg(Query(Note).where("part", ">", 0), "part") == 0.375

    async def test_a_sum_may_pass_what_one_number_can_hold(self, store: Store) -> None:
        await store.commit(*(create(Note(id=id, whole=INTEGER_MAX)) for id in "abc"))
        assert await store.sum(Query(Note), "whole") == pytest.approx(3 * INTEGER_MAX)
        assert await store.avg(Query(Note), "whole") == pytest.approx(INTEGER_MAX)

    async def test_over_nothing_the_sum_is_zero_and_the_average_none(self, store: Store) -> None:
        assert (await store.sum(Query(Note), "whole"), await store.avg(Query(Note), "part")) == (0, None)
        assert await store.count(Query(Note)) == 0

    async def test_counting_ignores_the_size_of_a_page(self, notes: Store) -> None:
        assert await notes.count(Query(Note).limit(2)) == 9
        assert await notes.sum(Query(Note).where("whole", "in", [1, 2]).limit(1), "whole") == 5

    async def test_as_many_alternatives_as_stated_are_served(self, store: Store) -> None:
        await store.commit(*(create(Note(id=f"{n:02}", whole=n)) for n in range(ALTERNATIVES_MAX + 2)))
        chosen = list(range(ALTERNATIVES_MAX))
        assert await store.count(Query(Note).where("whole", "in", chosen)) == ALTERNATIVES_MAX
        left = await store.query(Query(Note).where("whole", "not-in", chosen))
        assert [doc.whole for doc in left.docs] == [ALTERNATIVES_MAX, ALTERNATIVES_MAX + 1]

    async def test_sub_collections_are_asked_one_by_one_or_across_their_parents(self, store: Store) -> None:
        leaves = [Leaf(tree=t, branch=b, id=i, size=n % 2) for n, (t, b, i) in enumerate(LEAVES)]
        await store.commit(*(create(leaf) for leaf in leaves))
        one = await store.query(Query(Leaf).under("t", "a").order_by("-size"))
        every = [s.doc async for s in store.scan(Query(Leaf).across_parents().limit(2))]
        sized = [s.doc async for s in store.scan(Query(Leaf).across_parents().order_by("-size").limit(2))]
        places = [[(d.tree, d.branch, d.id) for d in docs] for docs in (one.docs, every, sized)]
        assert places[0] == [("t", "a", "y"), ("t", "a", "x")]
        assert places[1] == sorted(LEAVES)
        ones = {(d.tree, d.branch, d.id) for d in leaves if d.size == 1}
        assert places[2] == sorted(LEAVES, key=lambda place: (place in ones, place), reverse=True)
        assert await store.count(Query(Leaf).under("t", "nothing")) == 0

    async def test_one_tenants_pages_hold_its_own_and_a_privileged_handle_sees_all(
        self, store: Store
    ) -> None:
        for tenant, id, balance in [("t", "1", 5), ("u", "2", 3), ("t", "3", 1), ("u", "4", 9)]:
            account = Account(id=id, tenant_id=tenant, name="n", balance=balance)
            await store.tenant(tenant).commit(create(account))
        query = Query(Account).order_by("balance")
        handles = [store.tenant("t"), store.tenant("u"), store.privileged()]
        found = [[item.doc.id async for item in handle.scan(query.limit(1))] for handle in handles]
        assert found == [["3", "1"], ["2", "4"], ["3", "2", "1", "4"]]
        assert [await handle.sum(query, "balance") for handle in handles] == [6, 12, 18]
        assert [await handle.count(Query(Account)) for handle in handles] == [2, 2, 4]
