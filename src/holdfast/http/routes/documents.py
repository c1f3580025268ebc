"""Routes for stored documents of any collection, without their secrets."""

from __future__ import annotations

from typing import Annotated, Any, Final

from litestar.params import FromPath, QueryParameter

from holdfast.errors import InvalidError
from holdfast.http.dependencies import RuntimeDependency
from holdfast.operations import documents
from holdfast.operations.documents import Collections, DocumentPage
from holdfast.routing import By, Cursor, Limit, read_route

_Index = Annotated[str, QueryParameter(description="The index to list by; the first unless given.")]
_Pairs = Annotated[list[str] | None, QueryParameter(description="NAME=VALUE; may be repeated.")]
_Ids = Annotated[list[str], QueryParameter(name="id", description="Its ids, its parents' first.")]


def _pairs(words: list[str] | None) -> dict[str, str]:
    pairs = dict(word.split("=", 1) for word in words or () if "=" in word)
    if len(pairs) < len(words or ()):
        raise InvalidError("write each as NAME=VALUE, every name once")
    return pairs


@read_route("/documents", "admin", area="documents", all_tenants=True)
async def list_collections(runtime: RuntimeDependency, by: By) -> Collections:
    """Collections, and the indexes each can be listed by."""
    return documents.list_collections(runtime, by.caller, by.tenant_id)


@read_route("/documents/{collection:str}", "admin", area="documents", all_tenants=True)
async def list_documents(
    runtime: RuntimeDependency,
    by: By,
    collection: FromPath[str],
    index: _Index = "",
    value: _Pairs = None,
    under: _Pairs = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> DocumentPage:
    """Documents in the order of an index: `value` for its first fields, `under` for parents."""
    return await documents.list_documents(
        runtime, by.caller, by.tenant_id, collection=collection, index=index, parents=_pairs(under),
        values=_pairs(value), limit=limit, cursor=cursor,
    )  # fmt: skip


@read_route("/documents/{collection:str}/document", "admin", area="documents", all_tenants=True)
async def get_document(
    runtime: RuntimeDependency, by: By, collection: FromPath[str], ids: _Ids
) -> dict[str, Any]:
    """One document as it is stored."""
    return await documents.get_document(runtime, by.caller, by.tenant_id, collection=collection, ids=ids)


ROUTES: Final = (list_collections, list_documents, get_document)
