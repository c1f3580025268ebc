"""One search over everything that a caller may see: by id, whole or its beginning, and people by name."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import BadIdError
from holdfast.kit import ALL_TENANTS, NO_TENANT
from holdfast.kit.access import User
from holdfast.kit.access.authorization import has_role
from holdfast.kit.outbox import Delivery, Endpoint
from holdfast.kit.runs import RunFields
from holdfast.model import Caller, Document
from holdfast.operations.users import list_users
from holdfast.runtime import Runtime
from holdfast.runtime.document_browser import Collection, DocumentBrowser
from holdfast.store import Snapshot

CHARACTERS_MIN: Final = 3
SHOWN_PER_COLLECTION: Final = 5
# Ids are in one order over all tenants, so a search in one tenant may read others' and leave them out.
READ_PER_COLLECTION: Final = 50
_AT_ONCE: Final = 8

Kind = Literal["delivery", "endpoint", "run", "person", "document"]
# The role that the pages of each kind need.
_NEEDS: Final[Mapping[Kind, str]] = {
    "delivery": "viewer", "run": "viewer", "endpoint": "developer", "document": "admin",
}  # fmt: skip


class SearchMatch(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A document by its ids, its parents' first; `part` is its outbox, or its collection."""

    kind: Kind
    part: str
    ids: list[str]
    tenant_id: str
    exact: bool
    summary: str


class SearchGroup(msgspec.Struct, frozen=True):
    """The matches in one collection; with `more`, a longer text may find others."""

    name: str
    items: list[SearchMatch]
    more: bool


class SearchResponse(msgspec.Struct, frozen=True):
    """What was found, exact ids first, and the names of what was searched."""

    groups: list[SearchGroup]
    searched: list[str]


async def search(runtime: Runtime, caller: Caller, tenant_id: str, text: str) -> SearchResponse:
    """Search what the caller may see in a tenant, or in all: ids, whole or their beginning, and people."""
    wanted, browser, limit = text.strip(), DocumentBrowser(runtime), asyncio.Semaphore(_AT_ONCE)
    # Deliveries, endpoints and runs have pages of their own, whose roles are the rule.
    browsable = browser.collections(caller, tenant_id)
    collections = [
        one
        for one in browser.every_collection(tenant_id)
        if not issubclass(one.schema.cls, User)
        and has_role(caller, _NEEDS[_kind(one.schema.cls)], tenant_id)
        and (_kind(one.schema.cls) != "document" or one in browsable)
    ]

    async def look(collection: Collection) -> SearchGroup:
        async with limit:
            return await _search_collection(runtime, browser, collection, tenant_id=tenant_id, text=wanted)

    groups = await asyncio.gather(*(look(one) for one in collections)) if wanted else []
    searched = [one.name for one in collections]
    if has_role(caller, "admin", NO_TENANT):
        searched.insert(0, "people")
        groups = [await _search_people(runtime, wanted), *groups]
    found = [one for one in groups if one.items]
    return SearchResponse(sorted(found, key=lambda one: not one.items[0].exact), searched)


async def _search_people(runtime: Runtime, text: str) -> SearchGroup:
    page = await list_users(runtime, name=text, limit=SHOWN_PER_COLLECTION) if text else None
    items = [
        SearchMatch(
            kind="person", part="people", ids=[one.name], tenant_id=one.tenant_id,
            exact=one.name == text.lower(), summary=one.role,
        )
        for one in (page.items if page else ())
    ]  # fmt: skip
    return SearchGroup("people", items, page is not None and page.cursor is not None)


async def _search_collection(
    runtime: Runtime, browser: DocumentBrowser, collection: Collection, *, tenant_id: str, text: str
) -> SearchGroup:
    schema, ids = collection.schema, text.split("/")
    if schema.tenant_is_parent and tenant_id != ALL_TENANTS and len(ids) < len(schema.path.parameters):
        ids = [tenant_id, *ids]
    exact, begun = None, list[Snapshot[Any]]()
    if len(ids) == len(schema.path.parameters) and all(ids):
        with contextlib.suppress(BadIdError):
            exact = await browser.store_for(collection, tenant_id).get(schema.cls, *ids)
            if len(ids[-1]) >= CHARACTERS_MIN:
                begun = await runtime.store.privileged().find_by_prefix(
                    schema.cls, *ids, limit=READ_PER_COLLECTION
                )
    more = len(begun) == READ_PER_COLLECTION
    seen = [one for one in begun if tenant_id in (ALL_TENANTS, collection.tenant_of(one))]
    matches = [*([] if exact is None else [exact]), *seen]
    items = [_match(runtime, collection, one, exact=one is exact) for one in matches[:SHOWN_PER_COLLECTION]]
    return SearchGroup(collection.name, items, more or len(matches) > SHOWN_PER_COLLECTION)


def _match(runtime: Runtime, collection: Collection, found: Snapshot[Any], *, exact: bool) -> SearchMatch:
    kind = _kind(collection.schema.cls)
    outboxes = {cls: name for name, one in runtime.outboxes.items() for cls in one.models.all}
    return SearchMatch(
        kind=kind,
        part=collection.name if kind == "document" else outboxes.get(collection.schema.cls, collection.name),
        ids=list(collection.ids(found).values()), tenant_id=collection.tenant_of(found), exact=exact,
        summary=_summary(found.doc),
    )  # fmt: skip


def _kind(cls: type[Document]) -> Kind:
    kinds: Iterable[tuple[type[Document], Kind]] = (
        (Delivery, "delivery"), (Endpoint, "endpoint"), (RunFields, "run"),
    )  # fmt: skip
    return next((kind for base, kind in kinds if issubclass(cls, base)), "document")


def _summary(doc: Document) -> str:
    if isinstance(doc, Delivery):
        return f"{doc.event_type}, {doc.status}"
    return f"{doc.type}, {doc.status}" if isinstance(doc, RunFields) else ""
