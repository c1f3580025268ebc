"""Who may browse which collections, and reading of documents."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from holdfast.errors import NotFoundError
from holdfast.kit import ALL_TENANTS, NO_TENANT
from holdfast.kit.access.authorization import privileged
from holdfast.model import Caller
from holdfast.runtime.document_browser.collection import Collection, required_id
from holdfast.runtime.document_registry import hidden_fields
from holdfast.runtime.runtime import Runtime
from holdfast.store import Snapshot, Store


class DocumentBrowser:
    """The collections of a process that a caller may browse.

    A platform administrator may browse all of them, in any tenant or over all; others those that they may
    read, in their own. Collections without tenant belong to the platform.

    Example: `DocumentBrowser(runtime).collection(caller, "acme", "holdfast_runs")`
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._collections = functools.cache(self._build_collections)

    def _build_collections(self, wide: bool) -> list[Collection]:
        catalog, hidden = self._runtime.store.catalog, hidden_fields(self._runtime.services)
        owners = {cls: one.name for one in self._runtime.services for cls in one.documents}
        return [
            Collection(
                schema, catalog.table(schema), owner=owners.get(schema.cls, "kit"),
                hidden=hidden.get(schema.cls, frozenset()), wide=wide,
            )
            for schema in sorted(catalog.schemas, key=catalog.table)
        ]  # fmt: skip

    def collections(self, caller: Caller, tenant_id: str) -> list[Collection]:
        """The collections that the caller may browse, by name."""
        return [one for one in self.every_collection(tenant_id) if _may_browse(one, caller, tenant_id)]

    def every_collection(self, tenant_id: str) -> list[Collection]:
        """All collections by name, for surfaces with rules of their own."""
        return self._collections(tenant_id == ALL_TENANTS)

    def collection(self, caller: Caller, tenant_id: str, name: str) -> Collection:
        match = next((one for one in self.collections(caller, tenant_id) if one.name == name), None)
        if match is None:
            raise NotFoundError(f"there is no collection {name[:100]!r} that you may browse")
        return match

    def store_for(self, collection: Collection, tenant_id: str) -> Store:
        """The store handle that reads it: the tenant's, or the root's where there are no tenants."""
        untenanted = collection.schema.tenant is None
        return self._runtime.store if untenanted else self._runtime.store_of(tenant_id)

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
        return privileged(caller) and tenant_id in (NO_TENANT, ALL_TENANTS)
    return privileged(caller) or schema.access.allows(caller, "read", tenant=tenant_id, fields={})
