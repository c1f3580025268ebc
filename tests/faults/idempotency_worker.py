"""What a process does that serves requests under idempotency keys while a test kills it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

from holdfast.kit import NO_TENANT
from holdfast.kit.idempotency import Done, Idempotency, IdempotencyDocument, StoredResponse, Ticket
from holdfast.model import Document, document
from holdfast.store import Increment, upsert
from tests.faults.controlled_process import Hear, Order, Role
from tests.faults.store_opener import opener


@document("sales/{id}", tenant="tenant_id")
class Sale(Document):
    id: str
    tenant_id: str = NO_TENANT
    made: int = 1


ALL: list[type[Document]] = [IdempotencyDocument, Sale]


opened = opener(ALL)


def sell(me: str) -> Callable[[Ticket], Awaitable[Done]]:
    async def act(ticket: Ticket) -> Done:
        return Done(
            StoredResponse(status=201, body=me), [upsert(Sale(id="s"), changes={"made": Increment(1)})]
        )

    return act


async def callers(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Ten calls at the same moment, which is told from outside."""
    async with opened(order["url"]) as store:
        idempotency = Idempotency(store)
        say("open")
        await hear()
        calls = [idempotency.run("k", b"body", sell(order["me"]), wait_s=30) for _ in range(10)]
        given = await asyncio.gather(*calls)
    say(json.dumps([(one.answer.body, one.replayed) for one in given]))


async def stuck(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Begins the work, tells, and never ends it."""

    async def act(ticket: Ticket) -> Done:
        say("working")
        await hear()
        return await sell(order["me"])(ticket)

    async with opened(order["url"]) as store:
        await Idempotency(store, processing_s=order["processing_s"]).run("k", b"body", act)


ROLES: dict[str, Role] = {"callers": callers, "stuck": stuck}
