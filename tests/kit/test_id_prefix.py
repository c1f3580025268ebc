"""Documents by the beginning of their id, on every engine."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.errors import UnindexedQueryError
from holdfast.kit.outbox import OUTBOX_MODELS, Endpoint
from holdfast.store import Store, create

DOCUMENTS = list(OUTBOX_MODELS.all)
AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


async def test_documents_are_found_by_the_beginning_of_their_id_in_order(kit_store: Store) -> None:
    for tenant, id in (("a", "tree"), ("b", "tree-2"), ("a", "tree-1"), ("a", "trunk"), ("a", "Tree-3")):
        made = Endpoint(id=id, tenant_id=tenant, url="https://h.example", created_at=AT)
        await kit_store.tenant(tenant).commit(create(made))
    store = kit_store.privileged()

    async def found(prefix: str, limit: int = 10) -> list[str]:
        return [one.doc.id for one in await store.find_by_prefix(Endpoint, prefix, limit=limit)]

    assert await found("tree") == ["tree-1", "tree-2"]
    assert await found("tr", 2) == ["tree", "tree-1"]
    assert await found("x") == []
    with pytest.raises(UnindexedQueryError):
        await kit_store.tenant("a").find_by_prefix(Endpoint, "tree", limit=10)
