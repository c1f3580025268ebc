"""A tenant's own document is its own tenant: `tenant="id"`, on every engine."""

from __future__ import annotations

import pytest

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError, NotFoundError, WrongTenantError
from holdfast.model import Document, Index, document
from holdfast.store import Query, create, delete, patch, put


@document("firms/{id}", tenant="id", indexes=[Index(), Index("plan"), Index("plan", across="tenants")])
class Firm(Document):
    id: str
    plan: str = "free"


@pytest.mark.parametrize("engine", ["sqlite_url", "postgres_url", "firestore_url"])
async def test_a_tenant_reaches_its_own_document_and_no_other(
    request: pytest.FixtureRequest, engine: str
) -> None:
    store = await open_store(request.getfixturevalue(engine), [Firm])
    try:
        await store.migrate()
        one, two = store.tenant("one"), store.tenant("two")
        await one.commit(create(Firm(id="one")))
        await two.commit(create(Firm(id="two")))

        assert [firm.id for firm in (await one.query(Query(Firm))).docs] == ["one"]
        assert [firm.id for firm in (await one.query(Query(Firm).where("plan", "==", "free"))).docs] == [
            "one"
        ]
        assert await one.get(Firm, "two") is None
        with pytest.raises(WrongTenantError):
            await one.commit(put(Firm(id="two", plan="pro")))
        with pytest.raises(WrongTenantError):
            await one.commit(create(Firm(id="three")))
        with pytest.raises(NotFoundError):
            await one.commit(patch(Firm, "two", changes={"plan": "pro"}))
        with pytest.raises(AlreadyExistsError):
            await two.commit(create(Firm(id="two")))
        await one.commit(delete(Firm, "two"))

        both = await store.privileged().query(Query(Firm).where("plan", "==", "free"))
        assert [firm.id for firm in both.docs] == ["one", "two"]
    finally:
        await store.close()
