"""The first message of a source must not wait for the backlog of another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from itertools import count

from bench.measure import SLOW_TURNS, Goal, Place, Ways, Workload
from holdfast.app import open_store
from holdfast.ids import ulid
from holdfast.kit.inbox import Inbox, InboxItem, InboxQueue, InboxWorker, Source, Verified
from holdfast.store import Store, Transaction, create

PENDING, PENDING_QUICK = 100_000, 10_000
BATCH = 500
HANDLING_S = 0.02
BOUND_MS = 1_000.0


class _Anyone:
    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(headers["x-name"])


QUIET = Source(name="quiet", verifier=_Anyone())


async def fill(store: Store, pending: int) -> None:
    now = store.clock.now()
    for first in range(0, pending, BATCH):
        names = range(first, min(first + BATCH, pending))
        await store.privileged().commit(*(
            create(InboxItem.received(
                tenant_id="busy", source="busy", message_id=f"{n:06}", received_at=now, due_at=now, body=b"{}"
            ))
            for n in names
        ))  # fmt: skip


@asynccontextmanager
async def beside_backlog(place: Place, engine: str) -> AsyncIterator[Ways]:
    store = await open_store(place.url(engine), [InboxItem, InboxQueue])
    await store.migrate()
    await fill(store, place.scale(PENDING, PENDING_QUICK))
    begun, stop, numbers = asyncio.Event(), asyncio.Event(), count()

    async def handle_slowly(item: InboxItem, tx: Transaction) -> None:
        await asyncio.sleep(HANDLING_S)

    async def note(item: InboxItem, tx: Transaction) -> None:
        begun.set()

    async def first_message() -> float:
        begun.clear()
        start = time.perf_counter()
        await Inbox(store).receive(QUIET, {"x-name": f"{next(numbers)}-{ulid()}"}, b"{}")
        await begun.wait()
        return (time.perf_counter() - start) * 1_000

    async def bound() -> float:
        return BOUND_MS

    worker = asyncio.create_task(InboxWorker(store, {"busy": handle_slowly, "quiet": note}).run(stop))
    yield Ways(ours=first_message, other=bound)
    stop.set()
    await worker
    await store.close()


WORKLOADS = [
    Workload(
        name=f"first message of a source beside {PENDING:,} pending of another",
        quick_name=f"first message of a source beside {PENDING_QUICK:,} pending of another",
        engines=("sqlite full", "postgres"), unit="ms", goal=Goal(1.0, at_most=True), other_name="the bound",
        open=beside_backlog, turns=SLOW_TURNS,
    )
]  # fmt: skip
