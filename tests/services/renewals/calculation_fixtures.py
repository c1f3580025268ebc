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
from holdfast.kit.audit import AuditEvent, AuditHead
from holdfast.kit.idempotency import IdempotencyDocument
from holdfast.kit.leases import LeaseDocument
from holdfast.kit.runs import Runner
from holdfast.model import Document
from holdfast.services.renewals.jobs.calculation import workflow
from holdfast.services.renewals.jobs.calculation_jobs import CalculationJobs
from holdfast.services.renewals.models import DOCUMENTS, JOBS
from holdfast.store import Store
from holdfast.subprocess_worker import StoreSubprocessPool, StoreSubprocessWorker
from tests.faults.controlled_process import Hear, Order, Role

KEPT: Final[list[type[Document]]] = list(
    dict.fromkeys([*DOCUMENTS, *JOBS.documents, IdempotencyDocument, LeaseDocument, AuditEvent, AuditHead])
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


class Watched:
    """Starts companions as the product does, waits until they are ready, and remembers them."""

    def __init__(self, url: str) -> None:
        self._beside = StoreSubprocessPool(url)
        self.companions: list[StoreSubprocessWorker] = []
        self.peak_mb = 0

    @contextlib.asynccontextmanager
    async def __call__(self, part: str) -> AsyncIterator[StoreSubprocessWorker]:
        try:
            async with self._beside(part) as companion:
                await companion.begun()
                self.companions.append(companion)
                yield companion
        finally:
            await self._beside.close()


def runner_of(store: Store, *, page: int, subprocess_pool: Watched | None = None) -> Runner:
    flow = workflow(store, page=page, subprocess_pool=subprocess_pool, subprocess_min=1)
    return Runner(store.privileged(), [flow], models=JOBS, lease_s=LEASE_S, renew_s=LEASE_S / 3, poll_s=0.2)


def jobs_of(store: Store, *, page: int = 2_000) -> CalculationJobs:
    return CalculationJobs(store.tenant("-"), workflow(store, page=page))


@contextlib.asynccontextmanager
async def working(
    store: Store, *, page: int = 2_000, subprocess_pool: Watched | None = None
) -> AsyncIterator[CalculationJobs]:
    """A runner at work on the store."""
    stop = asyncio.Event()
    task = asyncio.create_task(runner_of(store, page=page, subprocess_pool=subprocess_pool).run(stop))
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
    """Calculate one property; tells the most memory it took here and beside, at one moment, in MB."""
    watched = Watched(order["url"])
    async with opened(order["url"]) as store, working(store, subprocess_pool=watched) as jobs:
        looking = asyncio.create_task(_look(watched))
        job = await jobs.start(order["property"], as_of=date.fromisoformat(order["as_of"]))
        ended = await jobs.wait(job.id, within_s=600)
        looking.cancel()
        say(f"peak {ended.status} {ended.scored} {watched.peak_mb}")


async def _look(watched: Watched) -> None:
    while True:
        held = sum(map(_held_mb, ["self", *(str(one.pid) for one in watched.companions)]))
        watched.peak_mb = max(watched.peak_mb, held)
        await asyncio.sleep(0.02)


def _held_mb(process: str) -> int:
    """What a process holds now; what several share is counted once among them."""
    try:
        found = re.search(r"Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text())
    except OSError:
        return 0
    return 0 if found is None else int(found[1]) // 1024


ROLES: dict[str, Role] = {"calculate": calculate, "measure": measure}
