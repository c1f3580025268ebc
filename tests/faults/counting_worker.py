"""Processes that count and audit at once: `python -m tests.faults.counting_worker ROLE URL AMOUNT COUNT`."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import uvloop

from holdfast.app import open_store
from holdfast.errors import LimitReachedError
from holdfast.kit.audit import Audit, AuditEntry, AuditEvent, AuditHead
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
            await acme.commit(*meter.writes_take("runs 2026-10", limit=100))
        except LimitReachedError:
            return 0
        return 1

    return sum(await asyncio.gather(*(one() for _ in range(amount))))


async def log(store: Store, name: int, amount: int) -> int:
    audit = Audit(store, tenant_id=TENANT)
    for number in range(amount):
        await audit.append(AuditEntry(action="act", actor=f"p{name}", subject=str(number)))
    return amount


ROLES: Final[dict[str, Callable[[Store, int, int], Awaitable[int]]]] = {
    "count": count,
    "take": take,
    "log": log,
}


async def main(role: str, url: str, name: int, amount: int) -> None:
    store = await open_store(url, DOCUMENTS)
    said = await ROLES[role](store, name, amount)
    # One write: all speak into one pipe.
    os.write(1, f"{said}\n".encode())
    await store.close()


def fork_all(role: str, url: str, amount: str, processes: str) -> int:
    """Forked from a process that has imported everything and opened nothing; 0 if all did well."""
    engine = url.partition(":")[0].replace("postgresql", "postgres")
    importlib.import_module(f"holdfast.store.{engine}")
    forked = [_forked(role, url, n, int(amount)) for n in range(int(processes))]
    statuses = [os.waitpid(pid, 0)[1] for pid in forked]
    return int(any(statuses))


def _forked(role: str, url: str, name: int, amount: int) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            uvloop.run(main(role, url, name, amount))
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    return pid


if __name__ == "__main__":
    sys.exit(fork_all(*sys.argv[1:5]))
