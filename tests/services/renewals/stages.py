"""Processes for tests: one calculates and dies, or stands still, at an exact point; one starts jobs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from holdfast.kit.runs import Runner
from holdfast.services.renewals.calculating import workflow
from holdfast.services.renewals.models import JOBS, RiskScore
from holdfast.store import Store
from holdfast.store.commit import Commit, Outcome, Snapshot
from holdfast.store.port import ClaimRequest
from tests.faults.puppet import Hear, Order, Role
from tests.services.renewals.calculations import jobs_of, opened

LEASE_S: Final = 1.0


class Watched:
    """An engine that raises a signal in its own process before or after a commit of the kind named.

    `commit` is what is committed: `begin` (the run is taken up), `scores` or `end`; `number` says which of
    that kind, the first being 1.
    """

    def __init__(self, engine: Any, *, point: str, commit: str, number: int, signal: int) -> None:
        self._engine = engine
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
    if any(write.schema.cls is RiskScore for write in commit.writes):
        return "scores"
    for write in commit.writes:
        changes = write.changes or {}
        if write.schema.cls is JOBS.run and changes.get("completed_at") is not None:
            return "end"
        if write.schema.cls is JOBS.run and changes.get("current_step") is not None:
            return "begin"
    return "other"


async def calculate(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Calculate once told to, up to the point the order names."""
    async with opened(order["url"]) as plain:
        chosen = {name: order[name] for name in ("point", "commit", "number")}
        engine: Any = Watched(plain.engine, signal=getattr(signal, order["signal"]), **chosen)
        store = Store(engine, clock=plain.clock)
        say("ready")
        await hear()
        flow = workflow(store, page=order["page"])
        runner = Runner(
            store.privileged(), [flow], kinds=JOBS, poll_s=0.1, lease_s=order.get("lease_s", LEASE_S),
            renew_s=LEASE_S / 4,
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


ROLES: dict[str, Role] = {"calculate": calculate, "start": start}
