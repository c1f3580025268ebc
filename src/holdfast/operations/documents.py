"""Stored documents of any collection, without their secrets: collections, lists by an index, one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.errors import InvalidError, NotFoundError
from holdfast.model import Caller
from holdfast.plural import plural
from holdfast.projection import project
from holdfast.runtime import Runtime
from holdfast.runtime.document_browser import DocumentBrowser


class CollectionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A collection, the service that owns it, and the indexes it can be listed by."""

    name: str
    owner: str
    indexes: list[str]
    summary: str


class Collections(msgspec.Struct, frozen=True):
    items: list[CollectionRow]


class DocumentPage(msgspec.Struct, frozen=True):
    """Documents with `_id`, `_tenant` and the fields worth a column."""

    items: list[dict[str, Any]]
    columns: list[str]
    cursor: str | None


def list_collections(runtime: Runtime, caller: Caller, tenant_id: str) -> Collections:
    """The collections that the caller may look into."""
    visible = DocumentBrowser(runtime).collections(caller, tenant_id)
    return Collections([project(one, CollectionRow, indexes=list(one.indexes)) for one in visible])


async def list_documents(
    runtime: Runtime,
    caller: Caller,
    tenant_id: str,
    *,
    collection: str,
    index: str = "",
    parents: Mapping[str, str] | None = None,
    values: Mapping[str, str] | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> DocumentPage:
    """Documents in the order of an index, the first unless named; `values` are given for its first fields."""
    browser = DocumentBrowser(runtime)
    found = browser.collection(caller, tenant_id, collection)
    chosen = found.find_index(index)
    if chosen is None:
        raise NotFoundError(f"no index lists {collection}; `holdfast documents show` opens one by its id")
    query = found.query(chosen, parents=parents or {}, values=values or {})
    page = await browser.store_for(found, tenant_id).query(query.limit(limit).after(cursor))
    columns = found.columns(chosen)
    rows = [found.row(one, columns) for one in page.items]
    items = [{"_id": "/".join(one.ids.values()), "_tenant": one.tenant_id, **one.fields} for one in rows]
    return DocumentPage(items, columns, page.cursor)


async def get_document(
    runtime: Runtime, caller: Caller, tenant_id: str, *, collection: str, ids: Sequence[str]
) -> dict[str, Any]:
    """One document as it is stored, without secrets; `ids` begins with its parents'."""
    browser = DocumentBrowser(runtime)
    found = browser.collection(caller, tenant_id, collection)
    names = found.schema.path.parameters
    if len(ids) != len(names):
        raise InvalidError(f"{collection} has {plural(len(names), 'id')}: {', '.join(names)}", "id")
    named = dict(zip(names, ids, strict=True))
    return found.redact(await browser.document(found, tenant_id, ids=named))
