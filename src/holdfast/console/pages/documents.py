"""What is kept, whatever it is: collections, the ways their indexes give to look, documents less secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from holdfast.errors import BadCursorError, InvalidError
from holdfast.runtime import Runtime
from holdfast.runtime.document_browser import BrowseIndex, Collection, DocumentBrowser
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_ID, _IN, _IS = "id.", "in.", "is."
_TYPED_CHARACTERS_MAX: Final = 1_500


class DocumentPages:
    def __init__(self, runtime: Runtime) -> None:
        self._documents = DocumentBrowser(runtime)

    async def collections(self, ask: PageRequest) -> Mapping[str, Any]:
        return {"rows": self._documents.collections(ask.caller, ask.tenant_id)}

    async def collection(self, ask: PageRequest) -> Mapping[str, Any]:
        collection = self._collection(ask)
        way = collection.find_index(ask.text("by"))
        typed = _typed(ask, *_asked(way))
        about: dict[str, Any] = {
            "title": collection.name, "collection": collection, "way": way, "typed": typed, "fault": "",
            "rows": None, "columns": [], "after": None,
            "parents": {name: text for name, text in typed.items() if name.startswith(_IN)},
        }  # fmt: skip
        if way is None:
            return about
        try:
            return about | await self._page(ask, collection, way, typed=typed)
        except BadCursorError:
            raise
        except InvalidError as wrong:
            # Nothing typed yet is no mistake: the form says what it needs.
            return about | {"fault": wrong.message if typed else ""}

    async def _page(
        self, ask: PageRequest, collection: Collection, way: BrowseIndex, *, typed: Mapping[str, str]
    ) -> dict[str, Any]:
        query = collection.query(way, parents=_behind(_IN, typed), values=_behind(_IS, typed))
        store = self._documents.store_for(collection, ask.tenant_id)
        page = await store.query(query.limit(ROWS).after(ask.cursor))
        columns = collection.columns(way)
        rows = [
            (collection.row(found, columns), collection.prefix_values(way, found)) for found in page.items
        ]
        return {"rows": rows, "columns": columns, "after": page.cursor}

    async def document(self, ask: PageRequest) -> Mapping[str, Any]:
        collection = self._collection(ask)
        asked = [_ID + name for name in collection.schema.path.parameters]
        given = _behind(_ID, _typed(ask, *asked))
        found = await self._documents.document(collection, ask.tenant_id, ids=given)
        ids = collection.ids(found)
        return {
            "title": "/".join(ids.values()), "collection": collection, "ids": ids,
            "tenant_id": collection.tenant_of(found),
            "shown": collection.redact(found), "version": found.version,
        }  # fmt: skip

    def _collection(self, ask: PageRequest) -> Collection:
        return self._documents.collection(ask.caller, ask.tenant_id, ask.path["collection"])


def _asked(way: BrowseIndex | None) -> list[str]:
    """What a way asks for, as the form names it; what another way left in the address says nothing here."""
    if way is None:
        return []
    return [*(_IN + name for name in way.parents), *(_IS + one.field for one in way.filters)]


def _typed(ask: PageRequest, *names: str) -> dict[str, str]:
    texts = {name: ask.text(name, characters_max=_TYPED_CHARACTERS_MAX) for name in names}
    return {name: text for name, text in texts.items() if text}


def _behind(prefix: str, typed: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix(prefix): text for name, text in typed.items() if name.startswith(prefix)}


def pages(runtime: Runtime) -> list[Page]:
    shown = DocumentPages(runtime)
    return [
        Page(
            path="/documents", title="Documents", template="documents.html", data=shown.collections,
            needs="admin", all_tenants=True,
        ),
        Page(
            path="/documents/{collection}", title="Collection", template="collection.html",
            data=shown.collection, needs="admin", nav=False, all_tenants=True,
        ),
        Page(
            path="/documents/{collection}/document", title="Document", template="document.html",
            data=shown.document, needs="admin", nav=False, all_tenants=True,
        ),
    ]  # fmt: skip
