"""Processes for tests: one calculates and dies, or stands still, at an exact point; one starts jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from holdfast.kit.runs import RunModels, Runner, Workflow
from holdfast.services.renewals.jobs.calculation import workflow
from holdfast.services.renewals.jobs.trigger_jobs import trigger_workflow
from holdfast.services.renewals.models import JOBS, TRIGGER_JOBS, DeliveryState, RiskScore
from holdfast.store import Store
from holdfast.store.commit import Commit, Outcome, Snapshot
from holdfast.store.port import ClaimRequest
from tests.faults.controlled_process import Hear, Order, Role
from tests.services.renewals.adjustable_clock import AdjustableClock
from tests.services.renewals.calculation_fixtures import jobs_of, opened

LEASE_S: Final = 1.0


class Watched:
    """An engine that raises a signal in its own process before or after a commit of the kind named.

    `commit` is what is committed: `begin` (the run is taken up), `scores`, `events` or `end`; `number` says
    which of that kind, the first being 1. Whoever lives on says what became of that commit.
    """

    def __init__(
        self, engine: Any, say: Callable[[str], None], *, point: str, commit: str, number: int, signal: int
    ) -> None:
        self._engine, self._say = engine, say
        self._point, self._kind, self._left, self._signal = point, commit, number, signal
        self._under_way, self._still = 0, asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def claim(self, request: ClaimRequest) -> list[Snapshot[Any]]:
        with self._writing():
            taken: list[Snapshot[Any]] = await self._engine.claim(request)
            return taken

    async def commit(self, commits: Sequence[Commit]) -> list[Outcome]:
        fits = self._kind in {kind_of(one) for one in commits}
        self._left -= fits
        now = fits and self._left == 0
        if now and self._point == "before":
            await self._raise()
        with self._writing():
            outcomes: list[Outcome] = await self._engine.commit(commits)
        if now and self._point == "after":
            await self._raise()
        if now:
            self._say(" ".join(type(one).__name__ for one in outcomes))
        return outcomes

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            self._still.set()

    async def _raise(self) -> None:
        # Whoever stands still in the middle of a write keeps the file locked, and all others waiting.
        while self._under_way and self._signal == signal.SIGSTOP:
            self._still.clear()
            await self._still.wait()
        os.kill(os.getpid(), self._signal)


def kind_of(commit: Commit) -> str:
    written = {write.schema.cls for write in commit.writes}
    if RiskScore in written:
        return "scores"
    if DeliveryState in written:
        return "events"
    for write in commit.writes:
        changes, of_run = write.changes or {}, write.schema.cls in (JOBS.run, TRIGGER_JOBS.run)
        if of_run and changes.get("completed_at") is not None:
            return "end"
        if of_run and changes.get("current_step") is not None:
            return "begin"
    return "other"


async def calculate(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Calculate once told to, up to the point the order names."""
    await _carry(order, say, hear, models=JOBS, flow=lambda store: workflow(store, page=order["page"]))


async def tell(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """The same for telling the RMS of whole tiers."""

    def flow(store: Store) -> Workflow:
        return trigger_workflow(store, batch=order["page"])

    await _carry(order, say, hear, models=TRIGGER_JOBS, flow=flow)


async def _carry(
    order: Order,
    say: Callable[[str], None],
    hear: Hear,
    *,
    models: RunModels,
    flow: Callable[[Store], Workflow],
) -> None:
    async with opened(order["url"], clock=AdjustableClock(order["ahead_s"])) as plain:
        chosen = {name: order[name] for name in ("point", "commit", "number")}
        engine: Any = Watched(plain.engine, say, signal=getattr(signal, order["signal"]), **chosen)
        store = Store(engine, clock=plain.clock)
        say("ready")
        await hear()
        runner = Runner(
            store.privileged(), [flow(store)], models=models, poll_s=0.1,
            lease_s=order.get("lease_s", LEASE_S), renew_s=LEASE_S / 4,
        )  # fmt: skip
        await runner.run(asyncio.Event())


async def start(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Start jobs, many at once, when told to; tells the ids that came back."""
    async with opened(order["url"]) as store:
        jobs = jobs_of(store)
        say("ready")
        await hear()
        keys = [f"key-{n}" if n % 2 else None for n in range(order["callers"])]
        made = await asyncio.gather(*(jobs.start(order["property"], key=key) for key in keys))
        say(" ".join(sorted({job.id for job in made})))


ROLES: dict[str, Role] = {"calculate": calculate, "start": start, "tell": tell}
