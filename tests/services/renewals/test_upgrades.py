"""Documents that an earlier release stored are found and shown under the names of this one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec import field

from holdfast.app import open_store
from holdfast.kit.outbox import Delivery
from holdfast.model import Claim, Index, document, schema_of
from holdfast.services.renewals.models import DOCUMENTS, DeliveryState
from holdfast.store import Query, create, put

NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)
_KIT = schema_of(Delivery).declared


@document(
    "webhook_delivery_state/{id}",
    tenant="tenant_id",
    indexes=[Index("status", "-created_at")],
    lifecycle=_KIT.lifecycle,
    claim=Claim(due="next_attempt_at", owner="owner", lane="endpoint_id", state=("status", "sending")),
)
class FirstDelivery(Delivery):
    """Version 1: two styles of names, the outbox's word for dlq, the payload as bytes alone."""

    id: str
    tenant_id: str = field(default="-", name="tenant_id")
    endpoint_id: str = field(name="property_id")
    resident_id: str = field(name="resident_id")
    event_id: str = field(name="event_id")
    event_type: str = field(name="event_type")
    body: bytes = field(name="payload")
    attempt_count: int = field(default=0, name="attempt_count")
    last_attempt_at: datetime | None = field(default=None, name="last_attempt_at")
    next_attempt_at: datetime | None = field(default=None, name="next_retry_at")
    created_at: datetime = field(name="created_at")


def first(number: int, **fields: Any) -> FirstDelivery:
    return FirstDelivery(
        id=f"evt-{number}~p", endpoint_id="p", resident_id="r", event_id=f"evt-{number}", event_type="t",
        body=b'{"eventId": "evt"}', occurred_at=NOW, created_at=NOW + timedelta(seconds=number), **fields,
    )  # fmt: skip


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_deliveries_of_the_first_version_are_found_by_their_new_state(
    request: pytest.FixtureRequest, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    store = await open_store(url, [FirstDelivery])
    await store.migrate()
    home = store.tenant("-")
    await home.commit(create(first(1, next_attempt_at=NOW)))
    (claimed,) = await home.claim_due(FirstDelivery, limit=1, lease_s=60)
    await home.commit(create(first(2, next_attempt_at=NOW)))
    dead = first(3, status="sending")
    await home.commit(create(dead))
    dead.status, dead.finished_at = "dead", NOW
    await home.commit(put(dead))
    await store.close()
    store = await open_store(url, DOCUMENTS)
    await store.migrate()
    assert await store.diff() == []
    home = store.tenant("-")
    query = Query(DeliveryState).where("status", "in", ["dlq", "sending", "pending"]).order_by("-created_at")
    states = {one.doc.event_id: one.doc.status async for one in home.scan(query)}
    assert states == {"evt-1": "sending", "evt-2": "pending", "evt-3": "dlq"}
    found = await home.get(DeliveryState, "evt-3~p")
    assert found is not None
    assert (found.doc.status, found.doc.state, found.doc.finished_at) == ("dlq", "dead", NOW)
    assert (found.doc.payload, found.doc.body) == ({"eventId": "evt"}, b'{"eventId": "evt"}')
    (again,) = await home.claim_due(DeliveryState, limit=9, lease_s=60)
    assert (again.doc.event_id, again.doc.fence) == ("evt-2", 1)
    assert claimed.doc.event_id == "evt-1"
    await store.close()
