"""A claim declared for documents that are there already."""

from __future__ import annotations

from datetime import UTC, datetime

from holdfast.app import open_store
from holdfast.model import Claim, Document, document
from holdfast.store import create


@document("late_claims/{id}")
class Before(Document):
    id: str
    due: datetime | None = None
    fence: int = 0


@document("late_claims/{id}", claim=Claim(due="due"))
class After(Document):
    id: str
    due: datetime | None = None
    fence: int = 0


async def test_documents_from_before_a_claim_was_declared_can_be_claimed(sqlite_url: str) -> None:
    past = datetime(2026, 1, 1, tzinfo=UTC)
    store = await open_store(sqlite_url, [Before])
    await store.migrate()
    await store.commit(create(Before(id="due", due=past)), create(Before(id="never")))
    await store.close()
    store = await open_store(sqlite_url, [After])
    await store.migrate()
    claimed = await store.claim_due(After, limit=10, lease_s=60)
    again = await store.claim_due(After, limit=10, lease_s=60)
    await store.close()
    assert [one.doc.id for one in claimed] == ["due"]
    assert again == []
