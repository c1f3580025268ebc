"""A worker whose every commit holds six things: a document, a delivery, an audit event, usage, an answer
to an idempotent request, and a checkpoint."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Final

from holdfast.app import open_store
from holdfast.kit.audit import Audit, AuditEntry, AuditEvent, AuditHead
from holdfast.kit.checkpoints import CheckpointDocument, Checkpoints
from holdfast.kit.idempotency import Idempotency, IdempotencyDocument, StoredResponse, Ticket
from holdfast.kit.metering import Meter, UsageEvent, UsageSum
from holdfast.kit.outbox import Delivery, Endpoint, Event, Outbox
from holdfast.model import Document, document
from holdfast.store import Store, Transaction, create
from tests.faults.fork_server import Say


@document("invoices/{id}", tenant="tenant_id")
class Invoice(Document):
    """The document that all the rest is about; its id is the fact's name."""

    id: str
    tenant_id: str
    text: str = ""


DOCUMENTS: Final[list[type[Document]]] = [
    Invoice, Delivery, AuditEvent, AuditHead, UsageEvent, UsageSum, IdempotencyDocument, CheckpointDocument,
]  # fmt: skip
PARTS: Final = ("document", "delivery", "audit", "usage", "answer", "checkpoint")
TENANT: Final = "acme"
LANES: Final = 2
ENDPOINT: Final = Endpoint(
    id="books",
    tenant_id=TENANT,
    url="https://books.example/hook",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)


class Bookkeeper:
    """Commits facts, one after another, each with all that belongs to it."""

    def __init__(self, store: Store, lane: str) -> None:
        self.store = store.tenant(TENANT)
        self.audit = Audit(store, tenant_id=TENANT)
        self.outbox = Outbox(self.store)
        self.meter = Meter(store, tenant_id=TENANT)
        self.idempotency = Idempotency(self.store)
        self.checkpoints = Checkpoints(self.store)
        self.run = f"run-{lane}"

    async def keep(self, fact: str, order: tuple[str, ...]) -> None:
        ticket = await self.idempotency.begin(fact, {"fact": fact})
        assert isinstance(ticket, Ticket)
        after = await self.checkpoints.latest(self.run)
        new = self.checkpoints.next(self.run, step_id="book", state={"fact": fact}, after=after)

        async def act(tx: Transaction) -> None:
            async def delivery() -> None:
                await self.outbox.add(tx, Event(type="invoice.made", body=b"{}", id=fact), [ENDPOINT])

            async def audit() -> None:
                await self.audit.add(tx, AuditEntry(action="invoice.made", actor="worker", subject=fact))

            async def plain(part: str) -> None:
                tx.write(*{
                    "document": lambda: [create(Invoice(id=fact, tenant_id=TENANT, text="x" * 300))],
                    "usage": lambda: self.meter.writes(fact, {"invoices": 1}),
                    "answer": lambda: self.idempotency.writes_complete(
                        ticket, StoredResponse(body={"id": fact})
                    ),
                    "checkpoint": lambda: self.checkpoints.writes_checkpoint(new, after=after),
                }[part]())  # fmt: skip

            adding: dict[str, Callable[[], Awaitable[None]]] = {"delivery": delivery, "audit": audit}
            for part in order:
                await (adding[part]() if part in adding else plain(part))

        await self.store.transact(act, attempts=100)


async def commit_jointly(order: dict[str, Any], say: Say) -> None:
    """For ever, in two lanes at once; `first` and `last` stand at the ends of each commit."""
    store = await open_store(order["url"], DOCUMENTS)
    say("open")
    os.read(order["barrier"], 1)
    ends = (order["first"], order["last"])
    parts = (ends[0], *(part for part in PARTS if part not in ends), ends[1])

    async def work(lane: int) -> None:
        keeper, number = Bookkeeper(store, str(lane)), 0
        while True:
            fact = f"{order['round']:04}-{lane}-{number:04}"
            await keeper.keep(fact, parts)
            say(f"kept {fact}")
            number += 1

    await asyncio.gather(*(work(lane) for lane in range(LANES)))
