"""Processes that count and log at the same time: `python -m tests.faults.tellers ROLE URL NAME AMOUNT`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import uvloop

from holdfast.app import open_store
from holdfast.errors import LimitReachedError
from holdfast.kit.audit import Audit, AuditEvent, AuditHead, Entry
from holdfast.kit.metering import Allowance, Meter, UsageEvent, UsageSum
from holdfast.model import Document
from holdfast.store import Store

DOCUMENTS: Final[list[type[Document]]] = [UsageEvent, UsageSum, Allowance, AuditEvent, AuditHead]
TENANT: Final = "acme"
LATE: Final = datetime(2026, 10, 31, 23, 59, 59, tzinfo=UTC)
BATCH: Final = 250


async def count(store: Store, name: int, amount: int) -> int:
    """Record facts around a month's end; every fifth was recorded by the neighbour as well."""
    meter = Meter(store, tenant_id=TENANT)
    facts = [
        (f"p{name if n % 5 else name ^ 1}-{n}", {"runs": 1}, LATE + timedelta(seconds=n % 2))
        for n in range(amount)
    ]
    counted = 0
    for start in range(0, amount, BATCH):
        counted += (await meter.record(facts[start : start + BATCH])).counted
    return counted


async def take(store: Store, name: int, amount: int) -> int:
    """Ask for more than there is, many at a time; gives how much was got."""
    meter, acme = Meter(store, tenant_id=TENANT), store.tenant(TENANT)

    async def one() -> int:
        try:
            await acme.commit(*meter.take_writes("runs 2026-10", limit=100))
        except LimitReachedError:
            return 0
        return 1

    return sum(await asyncio.gather(*(one() for _ in range(amount))))


async def log(store: Store, name: int, amount: int) -> int:
    audit = Audit(store, tenant_id=TENANT)
    for number in range(amount):
        await audit.append(Entry(action="act", actor=f"p{name}", subject=str(number)))
    return amount


ROLES: Final[dict[str, Callable[[Store, int, int], Awaitable[int]]]] = {
    "count": count,
    "take": take,
    "log": log,
}


async def main(role: str, url: str, name: str, amount: str) -> None:
    store = await open_store(url, DOCUMENTS)
    print(await ROLES[role](store, int(name), int(amount)))
    await store.close()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:5]))
