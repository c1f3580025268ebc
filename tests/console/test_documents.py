"""The browser of documents: by declared indexes alone, inside one tenant, never a secret."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest

from holdfast.kit.inbox import InboxItem
from holdfast.model.access import SERVICE
from holdfast.runtime.document_browser import DocumentBrowser
from holdfast.store import create, put
from tests.browser.scene import fill
from tests.console import library
from tests.console.console_harness import ConsoleHarness, Visitor, console
from tests.console.library import Book, Leaf, Loan, Rule

AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[library.service]) as made:
        await _stock(made)
        yield made


async def _stock(harness: ConsoleHarness) -> None:
    store = harness.runtime.store.tenant("-")
    books = [
        Book(
            id=f"b{n}", shelf="ab"[n % 2], state="worn" if n == 2 else "new", pages=100 * n, lent=n == 3,
            labels=["old", "red"][: n % 3], note=None if n else "null", weight=n / 2, cover=b"12345",
            bought_at=AT + timedelta(days=n), lender_token="tok-never-shown",
        )
        for n in range(5)
    ]  # fmt: skip
    leaves = [Leaf(id=f"l{n}", book_id="b1", number=n) for n in range(3)]
    await store.commit(*map(create, books), *map(create, leaves))
    await harness.runtime.store.tenant("acme").commit(create(Book(id="a1", tenant_id="acme", bought_at=AT)))
    await harness.runtime.store.commit(create(Rule(id="r1", word="quiet")))


def _found(text: str) -> list[str]:
    return [unescape(one) for one in re.findall(r'<tr data-key="([^"]+)"', text)]


async def _look(visitor: Visitor, collection: str = "books", **query: str) -> str:
    asked = urlencode({"tenant": "-"} | {name.replace("__", "."): value for name, value in query.items()})
    return await visitor.page(f"/console/documents/{collection}?{asked}")


def _fault(text: str) -> str:
    said = re.search(r'role="alert">([^<]+)<', text)
    return unescape(said[1]) if said else ""


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_each_way_to_look_answers_by_its_index_on_every_engine(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    asked: list[tuple[dict[str, str], list[str]]] = [
        ({"by": "shelf_boughtAt_desc", "is__shelf": "a"}, ["b4", "b2", "b0"]),
        ({"by": "shelf_boughtAt_desc"}, ["b4", "b2", "b0", "b3", "b1"]),
        ({"by": "state_pages", "is__state": "worn"}, ["b2"]),
        ({"by": "state_pages", "is__state": "new", "is__pages": "300"}, ["b3"]),
        ({"by": "labels_pages", "is__labels": "old"}, ["b1", "b2", "b4"]),
        ({"by": "lent_weight", "is__lent": "true"}, ["b3"]),
        ({"by": "lent_weight", "is__lent": "false", "is__weight": "1"}, ["b2"]),
        ({"by": "note", "is__note": "null"}, ["b1", "b2", "b3", "b4"]),
        ({"by": "note", "is__note": '"null"'}, ["b0"]),
        ({"by": "boughtAt", "is__boughtAt": "2026-11-17T12:00:00Z"}, ["b2"]),
    ]
    async with console(
        tmp_path, services=[library.service], store=request.getfixturevalue(f"{engine}_url")
    ) as harness:
        await _stock(harness)
        ann = await harness.signed_in("ann")
        for query, wanted in asked:
            assert _found(await _look(ann, **query)) == wanted, query
        nested = await _look(ann, "books__leaves", by="number", in__book_id="b1")
        assert _found(nested) == ["b1/l0", "b1/l1", "b1/l2"]
        assert _found(await _look(ann, "books__leaves", by="id", in__book_id="b0")) == []
        assert _found(await _look(ann, "rules", by="word", is__word="quiet")) == ["r1"]
        assert _found(await _look(ann, "rules", by="id")) == ["r1"]


async def test_what_is_typed_wrongly_is_told_beside_the_form(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    for query, said in (
        ({"by": "state_pages", "is__pages": "3"}, "give state"),
        ({"by": "state_pages", "is__state": "new", "is__pages": "many"}, "a whole number, not 'many'"),
        ({"by": "state_pages", "is__state": "new", "is__pages": "1.5"}, "pages takes a whole number"),
        ({"by": "state_pages", "is__state": "new", "is__pages": "9" * 30}, "pages takes a whole number"),
        ({"by": "lent_weight", "is__lent": "perhaps"}, "lent takes true or false"),
        ({"by": "lent_weight", "is__lent": "true", "is__weight": "1e999"}, "weight takes a number"),
        ({"by": "boughtAt", "is__boughtAt": "yesterday"}, "as in 2026-11-15T12:00:00Z"),
        ({"by": "boughtAt", "is__boughtAt": "2026-11-15"}, "as in 2026-11-15T12:00:00Z"),
        ({"by": "boughtAt", "is__boughtAt": "2026-11-15T12:00:00"}, "as in 2026-11-15T12:00:00Z"),
        ({"by": "shelf_boughtAt_desc", "is__shelf": "a\x00b"}, "NUL"),
        ({"by": "labels_pages", "is__pages": "3"}, "give labels"),
    ):  # fmt: skip
        text = await _look(ann, **query)
        assert said in _fault(text), query
        assert 'role="search"' in text
        assert _found(text) == []


async def test_what_cant_be_asked_is_an_error_page(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    for path, status, said in (
        ("/books?tenant=-&by=pages", 422, "the indexes are shelf_boughtAt_desc, state_pages"),
        ("/books?by=lenderToken", 422, "can&#39;t be browsed"),
        ("/books?cursor=x", 400, "not a cursor"),
        ("/books?tenant=-&by=shelf_boughtAt_desc&is.shelf=" + "x" * 2_000, 422, "at most 1500 characters"),
        ("/none", 404, "there is no collection"),
        ("/none/document?id.id=x", 404, "there is no collection"),
        ("/books/document?id.id=none", 404, "there is no"),
        ("/books/document", 422, "give id"),
        ("/books/document?id.id=a/b", 422, "can&#39;t hold"),
        ("/books__leaves/document?id.id=l1", 422, "give book_id"),
    ):
        text = await ann.page(f"/console/documents{path}", status)
        assert said in text, path


HOSTILE = (
    "x", "null", "1", "-0", "true", "[]", "{}", '"a"', "9" * 40, "1e400", "NaN", "\ud7ff\U0010ffff",
    '"\\ud800"', "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59.9999999-23:59", "1700000000", "'", "--",
    "a/b", ".", "\x01", "<script>alert(1)</script>",
)  # fmt: skip


async def test_whatever_is_typed_is_looked_for_or_told_to_be_wrong(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    for way in DocumentBrowser(harness.runtime).collection(SERVICE, "-", "books").indexes.values():
        for typed in HOSTILE:
            text = await _look(ann, by=way.name, **{f"is__{one.field}": typed for one in way.filters})
            assert "<script>alert" not in text
    for typed in HOSTILE:
        status, _, _ = await ann.ask(
            "GET", f"/console/documents/books/document?{urlencode({'id.id': typed})}"
        )
        assert status in (404, 422), typed


async def test_a_way_that_needs_something_asks_for_it_first(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    text = await _look(ann, by="labels_pages")
    assert "This index needs labels." in text
    assert _fault(text) == ""
    assert "This index needs book_id." in await _look(ann, "books__leaves")
    # What another way left in the address is passed over.
    assert _found(await _look(ann, by="boughtAt", is__shelf="a")) == ["b0", "b1", "b2", "b3", "b4"]


async def test_a_document_shows_everything_but_its_secrets(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    text = unescape(await ann.page("/console/documents/books/document?id.id=b2"))
    assert '"lenderToken": "••••••"' in text
    assert '"cover": "5 bytes"' in text
    assert '"pages": 200' in text
    for page in (text, await _look(ann), await _look(ann, by="boughtAt")):
        assert "tok-never-shown" not in page
    assert "lenderToken" not in await _look(ann)


async def test_no_page_of_any_collection_shows_a_secret_that_is_kept(harness: ConsoleHarness) -> None:
    await fill(harness.runtime)
    store = harness.runtime.store.tenant("-")
    endpoint = await harness.endpoint("https://rms.example/hook", id="sealed")
    item = InboxItem.received(
        tenant_id="-", source="s", message_id="m", received_at=AT, headers={"x-plain": "told-in-a-header"},
        body=b"told-in-a-body",
    )  # fmt: skip
    await store.commit(put(item))
    ann = await harness.signed_in("ann")
    user = await harness.person("secretive")
    secrets = ["never-shown", "ghp_never", "told-in", "hf1.", endpoint.secrets[0].sealed, user.password]
    documents, looked = DocumentBrowser(harness.runtime), 0
    for collection in documents.collections(SERVICE, "-"):
        for way in collection.indexes.values():
            if way.parents or any(one.needed for one in way.filters):
                continue
            pages = [await _look(ann, collection.name, by=way.name)]
            links = re.findall(r'href="([^"]+/document\?[^"]+)"', pages[0])
            pages += [await ann.page(unescape(link)) for link in links[:3]]
            looked += len(pages)
            for page in pages:
                assert not [secret for secret in secrets if secret in page], (collection.name, way.name)
    assert looked > 100


async def test_a_tenants_administrator_sees_what_declarations_let_them_and_no_other_tenant(
    harness: ConsoleHarness,
) -> None:
    ben = await harness.signed_in("ben", role="admin", tenant_id="acme")
    listed = _found(await ben.page("/console/documents"))
    assert {"books", "books__leaves", "holdfast_audit"} <= set(listed)
    assert not {"rules", "loans", "holdfast_sessions", "holdfast_consents"} & set(listed)
    assert _found(await _look(ben, tenant="acme")) == ["a1"]
    for path, status in (
        ("books/document?id.id=b1", 404), ("books/document?id.id=b1&tenant=-", 403), ("rules", 404),
        ("rules/document?id.id=r1", 404), ("loans", 404), ("books?tenant=-", 403),
    ):  # fmt: skip
        await ben.page(f"/console/documents/{path}", status)
    await ben.page("/console/documents/books/document?id.id=a1")


async def test_an_administrator_of_the_whole_looks_into_all_and_into_any_tenant(
    harness: ConsoleHarness,
) -> None:
    await harness.runtime.store.tenant("-").commit(create(Loan(id="l1")))
    ann = await harness.signed_in("ann")
    listed = _found(await ann.page("/console/documents"))
    assert {"books", "rules", "loans", "holdfast_sessions"} <= set(listed)
    assert _found(await _look(ann, tenant="acme")) == ["a1"]
    # What has no tenant is the platform's, and is looked at there.
    await ann.page("/console/documents/rules?tenant=acme", 404)
    loans = await _look(ann, "loans")
    assert "No index lists these documents." in loans
    await ann.page("/console/documents/loans/document?id.id=l1")
    vic = await harness.signed_in("vic", role="developer")
    for path in ("", "/books", "/books/document?id.id=b1"):
        assert "needs admin" in await vic.page(f"/console/documents{path}", 403)


async def test_a_value_leads_to_all_documents_that_share_it(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")

    async def after(text: str, row: str, field: str) -> list[str]:
        """What the value of a field in a row leads to."""
        cells = text.partition(f'data-key="{row}"')[2].partition("</tr>")[0]
        found = re.search(rf'data-label="{field}"><a href="([^"]+)"', cells)
        assert found is not None, cells
        return _found(await ann.page(unescape(found[1])))

    assert await after(await _look(ann, by="shelf_boughtAt_desc"), "b1", "shelf") == ["b3", "b1"]
    assert await after(await _look(ann, by="shelf_boughtAt_desc"), "b1", "boughtAt") == ["b1"]
    assert await after(await _look(ann, by="note"), "b0", "note") == ["b0"]
    assert await after(await _look(ann, by="note"), "b1", "note") == ["b1", "b2", "b3", "b4"]
    assert await after(await _look(ann, by="lent_weight"), "b4", "weight") == ["b4"]
    leaves = await _look(ann, "books__leaves", in__book_id="b1")
    assert await after(leaves, "b1/l2", "number") == ["b1/l2"]


async def test_long_collections_come_in_pages_that_keep_the_question(harness: ConsoleHarness) -> None:
    books = [Book(id=f"c{n:03}", shelf="long", bought_at=AT + timedelta(hours=n)) for n in range(70)]
    await harness.runtime.store.tenant("-").commit(*map(create, books))
    ann = await harness.signed_in("ann")
    first = await _look(ann, by="shelf_boughtAt_desc", is__shelf="long")
    following = re.search(r'href="([^"]+)" rel="next"', first)
    assert following is not None
    rest = await ann.page(unescape(following[1]))
    assert _found(first) + _found(rest) == [book.id for book in reversed(books)]
