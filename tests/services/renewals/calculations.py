"""Calculations outside a server: a store, a runner, and a process to be killed."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from datetime import date
from pathlib import Path
from typing import Final

from holdfast.app import open_store
from holdfast.clock import Clock
from holdfast.kit.idempotency import IdempotencyDocument
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.runs import Runner
from holdfast.model import Document
from holdfast.services.renewals.calculating import workflow
from holdfast.services.renewals.jobs import Jobs
from holdfast.services.renewals.models import DOCUMENTS, JOBS
from holdfast.store import Store
from tests.faults.puppet import Hear, Order, Role

KEPT: Final[list[type[Document]]] = list(
    dict.fromkeys([*DOCUMENTS, *JOBS.documents, IdempotencyDocument, LeaseDocument])
)
LEASE_S: Final = 1.5


@contextlib.asynccontextmanager
async def opened(url: str, *, clock: Clock | None = None) -> AsyncIterator[Store]:
    store = await open_store(url, KEPT, clock=clock)
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


def runner_of(store: Store, *, page: int) -> Runner:
    flow = workflow(store, page=page)
    return Runner(store.privileged(), [flow], kinds=JOBS, lease_s=LEASE_S, renew_s=LEASE_S / 3, poll_s=0.2)


def jobs_of(store: Store, *, page: int = 2_000) -> Jobs:
    return Jobs(store.tenant("-"), workflow(store, page=page))


@contextlib.asynccontextmanager
async def working(store: Store, *, page: int = 2_000) -> AsyncIterator[Jobs]:
    """A runner at work on the store."""
    stop = asyncio.Event()
    task = asyncio.create_task(runner_of(store, page=page).run(stop))
    try:
        yield jobs_of(store, page=page)
    finally:
        stop.set()
        await task


async def calculate(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Calculate until killed."""
    async with opened(order["url"]) as store:
        say("ready")
        await runner_of(store, page=order["page"]).run(asyncio.Event())


async def measure(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Calculate one property; tells the most memory this process has had, in MB."""
    async with opened(order["url"]) as store, working(store) as jobs:
        job = await jobs.start(order["property"], as_of=date.fromisoformat(order["as_of"]))
        ended = await jobs.ended(job.id, within_s=600)
        say(f"peak {ended.status} {ended.scored} {_peak_mb()}")


def _peak_mb() -> int:
    """The most memory since this program began; getrusage would count what its parent had when it forked."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


ROLES: dict[str, Role] = {"calculate": calculate, "measure": measure}
