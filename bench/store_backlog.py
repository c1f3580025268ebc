"""Claiming beside millions of finished documents must cost the same as beside none."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from bench.bulk_load import postgres_load, sqlite_load
from bench.event import DUE, Delivery, Event, deliveries
from bench.measure import Goal, Place, Ways, Workload
from bench.store_claim import fill
from holdfast.app import open_store
from holdfast.store import Query, Store, patch

FINISHED, FINISHED_QUICK = 5_000_000, 200_000
WAITING, BATCH = 1_000, 100

_COLUMNS = "_key, _version, due, fence, owner, status, received_ms, subject, _body"
_ROW = "'A' || printf('%010d', n), 1, NULL, 1, 'worker', 'delivered', n, 'subject-' || n % 10007, ?"


def finished_body() -> bytes:
    """Small documents: only their number could slow a claim."""
    one = deliveries(1)[0]
    one.payload, one.status, one.due, one.fence = "x" * 40, "delivered", None, 1
    return msgspec.json.encode(one)


async def add_finished(url: str, count: int) -> None:
    """Insert in bulk past the engine, into the same table with the same indexes."""
    body, into = finished_body().decode(), f"INSERT INTO deliveries ({_COLUMNS})"
    if url.startswith("sqlite"):
        with sqlite_load(url, ["deliveries"]) as file:
            file.execute(
                f"{into} WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?)"
                f" SELECT {_ROW} FROM i",
                (count, body),
            )
        return
    row = _ROW.replace("printf('%010d', n)", "lpad(n::text, 10, '0')").replace("?", "$2::json")
    async with postgres_load(url, ["deliveries"]) as link:
        await link.execute(f"{into} SELECT {row} FROM generate_series(1, $1::bigint) AS n", count, body)


async def claim_all(store: Store) -> float:
    """Claim every waiting document; return milliseconds per claim. Then make them wait again."""
    taken, start = [], time.perf_counter()
    while batch := await store.claim_due(Delivery, limit=BATCH, lease_s=3_600, owner="worker"):
        taken += batch
    spent = time.perf_counter() - start
    assert len(taken) == WAITING
    changes = {"status": "pending", "due": DUE}
    for begin in range(0, WAITING, 500):
        await store.settle([[patch(Delivery, s.key, changes=changes)] for s in taken[begin : begin + 500]])
    return spent * 1_000 / (WAITING / BATCH + 1)


@asynccontextmanager
async def backlog(place: Place, engine: str) -> AsyncIterator[Ways]:
    count = place.scale(FINISHED, FINISHED_QUICK)
    stores = []
    for finished in (count, 0):
        url = place.url(engine)
        store = await open_store(url, [Event, Delivery])
        await store.migrate()
        if finished:
            await add_finished(url, finished)
        await fill(store, WAITING)
        assert await store.count(Query(Delivery).order_by("received_ms")) == finished + WAITING
        stores.append(store)
    beside_many, beside_none = stores
    yield Ways(ours=lambda: claim_all(beside_many), other=lambda: claim_all(beside_none))
    for store in stores:
        await store.close()


WORKLOADS = [
    Workload(
        name=f"claim 100 of {WAITING:,} due beside {FINISHED:,} finished",
        quick_name=f"claim 100 of {WAITING:,} due beside {FINISHED_QUICK:,} finished (quick: not 5,000,000)",
        engines=("sqlite full", "postgres"), unit="ms/claim", goal=Goal(1.3, at_most=True),
        other_name="beside none", open=backlog,
    )
]  # fmt: skip
