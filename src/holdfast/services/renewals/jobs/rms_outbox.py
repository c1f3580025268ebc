"""The service's outbox: an endpoint for each property, whose id it has."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import NotFoundError
from holdfast.kit.outbox import Delivery, Endpoint
from holdfast.service import DispatcherFactory, OutboxPart
from holdfast.services.renewals.models import EVENT_TYPE, OUTBOX_MODELS, Property
from holdfast.store import Transaction


def rms_outbox(make_dispatcher: DispatcherFactory) -> OutboxPart:
    return OutboxPart(
        name="renewals",
        models=OUTBOX_MODELS,
        dispatcher=make_dispatcher(OUTBOX_MODELS, headers=_headers, plain_header="X-Webhook-Signature"),
        event_types=[EVENT_TYPE],
        endpoint_of="property",
        endpoint_page="/console/renewals/properties/{id}",
        check_endpoint=_require_property,
        test_fields={"resident_id": ""},
    )


def _headers(delivery: Delivery, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
    return (("X-Event-Id", delivery.event_id),)


async def _require_property(tx: Transaction, endpoint: Endpoint) -> None:
    if await tx.get(Property, endpoint.id) is None:
        raise NotFoundError(f"no property {endpoint.id!r}; an endpoint has the id of its property")
