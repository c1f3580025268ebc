"""Documents by the beginning of their id, on every engine."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from holdfast.errors import UnindexedQueryError, WrongTenantError
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


async def test_a_scan_yields_all_that_begin_with_a_prefix_however_many_and_each_tenant_its_own(
    kit_store: Store,
) -> None:
    """More than two pages of it; what comes before and after in the order of ids is left out."""
    tenants = {f"tree-{number:03}": "ab"[number % 2] for number in range(120)}
    others = dict.fromkeys(("tre", "tree", "tree-", "tree.", "trunk"), "a")
    for tenant in "ab":
        ids = [id for id, of in (tenants | others).items() if of == tenant]
        made = [Endpoint(id=id, tenant_id=tenant, url="https://h.example", created_at=AT) for id in ids]
        await kit_store.tenant(tenant).settle([[create(one)] for one in made])

    async def scanned(store: Store, prefix: str) -> list[str]:
        return [one.doc.id async for one in store.scan_by_prefix(Endpoint, prefix)]

    assert await scanned(kit_store.privileged(), "tree-") == sorted(tenants)
    assert await scanned(kit_store.tenant("b"), "tree-") == sorted(tenants)[1::2]
    assert await scanned(kit_store.tenant("a"), "tree-00") == [f"tree-00{n}" for n in (0, 2, 4, 6, 8)]
    assert await scanned(kit_store.tenant("c"), "tree-") == []
    assert await scanned(kit_store.privileged(), "x") == []
    with pytest.raises(WrongTenantError):
        await scanned(kit_store, "tree-")
