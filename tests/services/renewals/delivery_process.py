"""A process that delivers this service's events, to be killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from holdfast.app import open_store
from holdfast.kit.outbox import Delivery, Dispatcher, Endpoint, EndpointSecrets
from holdfast.kit.vault import Vault
from holdfast.net import AddressGuard, RawSender
from holdfast.services.renewals.models import DOCUMENTS, OUTBOX_MODELS
from tests.faults.controlled_process import Hear, Order, Role

LEASE_S: Final = 2.5


async def deliver(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Deliver until killed; every request says under which claim and by whom it is sent."""
    store = await open_store(order["url"], [*DOCUMENTS, *OUTBOX_MODELS.all])
    signing = EndpointSecrets(Vault.from_settings(order["keys"]), plain_header="X-Webhook-Signature").signing

    def headers(delivery: Delivery, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
        return (
            ("X-Event-Id", delivery.event_id),
            ("X-Fence", str(delivery.fence)),
            ("X-Worker", order["name"]),
        )

    sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
    dispatcher = Dispatcher(
        store,
        sender,
        signing=signing,
        headers=headers,
        owner=order["name"],
        lease_s=LEASE_S,
        models=OUTBOX_MODELS,
    )
    say("ready")
    await dispatcher.run(asyncio.Event())


ROLES: dict[str, Role] = {"deliver": deliver}
