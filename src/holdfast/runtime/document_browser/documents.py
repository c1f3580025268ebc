"""Who may browse which collections, and reading of documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.errors import NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.authorization import privileged
from holdfast.model import Caller
from holdfast.runtime.document_browser.collection import Collection, required_id
from holdfast.runtime.document_registry import hidden_fields
from holdfast.runtime.runtime import Runtime
from holdfast.store import Snapshot, Store


class DocumentBrowser:
    """The collections of a process that a caller may browse.

    A platform administrator may browse all of them, in any tenant; others those that they may read, in their
    own. Collections without tenant belong to the platform.

    Example: `DocumentBrowser(runtime).collection(caller, "acme", "holdfast_runs")`
    """

    def __init__(self, runtime: Runtime) -> None:
        self._store = runtime.store
        catalog, hidden = runtime.store.catalog, hidden_fields(runtime.services)
        owners = {cls: one.name for one in runtime.services for cls in one.documents}
        self._all = [
            Collection(
                schema, catalog.table(schema), owner=owners.get(schema.cls, "kit"),
                hidden=hidden.get(schema.cls, frozenset()),
            )
            for schema in catalog.schemas
        ]  # fmt: skip

    def collections(self, caller: Caller, tenant_id: str) -> list[Collection]:
        """The collections that the caller may browse, by name."""
        return sorted(
            (one for one in self._all if _may_browse(one, caller, tenant_id)), key=lambda one: one.name
        )

    def collection(self, caller: Caller, tenant_id: str, name: str) -> Collection:
        match = next((one for one in self.collections(caller, tenant_id) if one.name == name), None)
        if match is None:
            raise NotFoundError(f"there is no collection {name[:100]!r} that you may browse")
        return match

    def store_for(self, collection: Collection, tenant_id: str) -> Store:
        """The store handle that reads it: the tenant's, or the root's where there are no tenants."""
        return self._store if collection.schema.tenant is None else self._store.tenant(tenant_id)

    async def document(
        self, collection: Collection, tenant_id: str, *, ids: Mapping[str, str]
    ) -> Snapshot[Any]:
        """The document with these ids, or `NotFoundError`."""
        segments = [required_id(ids, name) for name in collection.schema.path.parameters]
        match = await self.store_for(collection, tenant_id).get(collection.schema.cls, *segments)
        if match is None:
            raise NotFoundError(f"there is no {'/'.join(segments)[:200]!r} in {collection.name}")
        return match


def _may_browse(collection: Collection, caller: Caller, tenant_id: str) -> bool:
    schema = collection.schema
    if schema.tenant is None:
        return privileged(caller) and tenant_id == NO_TENANT
    return privileged(caller) or schema.access.allows(caller, "read", tenant=tenant_id, fields={})
