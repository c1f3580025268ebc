"""Who may look into which collections, and the documents there."""

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
    """The collections of a process, as far as somebody may look into them.

    An administrator of the whole may look into all of them, in any tenant; another into those whose
    declaration lets them read, in their own. What has no tenant is the platform's.

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
        """Those the caller may look into, by name."""
        return sorted((one for one in self._all if _may(one, caller, tenant_id)), key=lambda one: one.name)

    def collection(self, caller: Caller, tenant_id: str, name: str) -> Collection:
        found = next((one for one in self.collections(caller, tenant_id) if one.name == name), None)
        if found is None:
            raise NotFoundError(f"there is no collection {name[:100]!r} here that you may look into")
        return found

    def store_for(self, collection: Collection, tenant_id: str) -> Store:
        """The handle that reads it: the tenant's own, or the root's where there are no tenants."""
        return self._store if collection.schema.tenant is None else self._store.tenant(tenant_id)

    async def document(
        self, collection: Collection, tenant_id: str, *, ids: Mapping[str, str]
    ) -> Snapshot[Any]:
        """The document with these ids, or `NotFoundError`."""
        whole = [required_id(ids, name) for name in collection.schema.path.parameters]
        found = await self.store_for(collection, tenant_id).get(collection.schema.cls, *whole)
        if found is None:
            raise NotFoundError(f"there is no {'/'.join(whole)[:200]!r} in {collection.name} here")
        return found


def _may(collection: Collection, caller: Caller, tenant_id: str) -> bool:
    schema = collection.schema
    if schema.tenant is None:
        return privileged(caller) and tenant_id == NO_TENANT
    return privileged(caller) or schema.access.allows(caller, "read", tenant=tenant_id, fields={})
