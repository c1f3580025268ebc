"""A process with a heartbeat that delivers under long leases, to be paused or killed by a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.kit.outbox import OUTBOX_MODELS, Delivery, Dispatcher, Endpoint, Sign, WebhookSigner
from holdfast.kit.outbox.signing import new_secret
from holdfast.kit.processes import PROCESS_DOCUMENTS, ProcessRegistry
from holdfast.model import Document
from holdfast.net import AddressGuard, RawSender
from tests.faults.controlled_process import Hear, Order, Role
from tests.faults.store_opener import opener

ALL: list[type[Document]] = [*OUTBOX_MODELS.all, *PROCESS_DOCUMENTS]
# No test waits for as long: what is taken over sooner was not taken over because its lease had ended.
LEASE_S = 240.0

opened = opener(ALL)


async def _signing(endpoint: Endpoint) -> Sign:
    return WebhookSigner([new_secret()]).headers


async def deliver(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Deliver until killed."""
    async with opened(order["url"]) as store:
        await ProcessRegistry(store, version="1", claimed=[Delivery]).start(migrate=False)
        sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
        dispatcher = Dispatcher(store, sender, signing=_signing, lease_s=LEASE_S)
        say("ready")
        await dispatcher.run(asyncio.Event())


ROLES: dict[str, Role] = {"deliver": deliver}
