"""Calculation runs: every resident of a property scored and kept, page by page, under the run's claim.

    start ──► job (one a property at a time) ──► runner claims it ──► page by page:
                         read ahead │ score (of many residents, in a process beside) │ keep scores and how
                         far, in one commit ──► who leaves when, in order ──► the summary
              a crash: the claim ends, another worker goes on after the last lot that was kept

Each lot lands under the run's fencing number, so a worker that has lost the run adds nothing to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Final

import msgspec
import structlog

from holdfast.errors import InvalidError
from holdfast.kit.outbox import Outbox
from holdfast.kit.runs import Runs, Step, Workflow
from holdfast.service import SubprocessPool
from holdfast.services.renewals.domain.scoring import FLAGGED, TIERS, Tier
from holdfast.services.renewals.jobs.resident_facts import PAGE, Reading
from holdfast.services.renewals.jobs.risk_events import event_of
from holdfast.services.renewals.jobs.scoring_pipeline import PART_NAME, TURN, Assignment, Scored, scored_pages
from holdfast.services.renewals.models import (
    JOBS,
    OUTBOX_MODELS,
    CalculationJob,
    Property,
    PropertyState,
    RiskScore,
    RmsEndpoint,
    Summary,
)
from holdfast.services.renewals.queries.lease_end_order import Ending, LeaseEndOrder, ending
from holdfast.services.renewals.queries.scores import run_scores
from holdfast.store import Fence, Store, Write, check, create_encoded, patch

WORKFLOW: Final = "calculate"
RUN_LIMIT_S: Final = 3_600.0
# How many jobs of the kind one process works on at the same time.
CONCURRENCY: Final = 4
# From how many residents on a process of its own is worth its start.
SUBPROCESS_MIN: Final = 20_000
ORDERS_A_COMMIT: Final = 100
log: Final = structlog.get_logger("holdfast.renewals")


def workflow(
    store: Store,
    *,
    page: int = PAGE,
    subprocess_pool: SubprocessPool | None = None,
    subprocess_min: int = SUBPROCESS_MIN,
) -> Workflow:
    """What a calculation job does, so many residents at a time; of many, the scoring is done beside."""
    made = Workflow(WORKFLOW, limit_s=RUN_LIMIT_S, concurrency=CONCURRENCY)

    @made.step(limit_s=RUN_LIMIT_S)
    async def score(step: Step) -> dict[str, int]:
        calculation = Calculation(store.tenant(step.run.tenant_id), step, page=page)
        return await calculation.run(subprocess_pool, subprocess_min=subprocess_min)

    return made


class _Lot:
    """Residents whose scores are kept together."""

    __slots__ = ("after", "endings", "scored", "sent", "skipped", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.endings: list[Ending] = []
        self.scored = self.skipped = self.sent = 0
        self.after = ""

    def add(self, some: Sequence[Scored], writes: Sequence[Write], *, sent: int) -> None:
        endings = [ending(one.days, one.resident_id, one.tier) for one in some if one.score is not None]
        self.after = some[-1].resident_id
        self.writes += writes
        self.endings += endings
        self.scored += len(endings)
        self.skipped += len(some) - len(endings)
        self.sent += sent


class Calculation:
    """One run at work."""

    def __init__(self, store: Store, step: Step, *, page: int = PAGE) -> None:
        assert isinstance(step.run, CalculationJob)
        self._store, self._step, self._job, self._page = store, step, step.run, page
        self._endings: list[Ending] = []
        self._send = tuple[Tier, ...]()
        self._endpoint: RmsEndpoint | None = None
        self._outbox, self._runs = Outbox(store, models=OUTBOX_MODELS), Runs(store, models=JOBS)

    async def run(
        self, subprocess_pool: SubprocessPool | None = None, *, subprocess_min: int = SUBPROCESS_MIN
    ) -> dict[str, int]:
        """Score the remaining residents; the summary is in the commit that ends the run."""
        job = self._job
        assignment = await self._assignment()
        await self._load_endpoint()
        job.residents = await Reading(self._store, assignment.moment).count()
        left = job.residents - job.scored - job.skipped
        async with contextlib.AsyncExitStack() as stack:
            worker = None
            if subprocess_pool is not None and left >= subprocess_min:
                worker = await stack.enter_async_context(subprocess_pool(PART_NAME))
            pages = scored_pages(self._store, assignment, worker=worker)
            await self._keep_all(await stack.enter_async_context(contextlib.aclosing(pages)))
        summary = self._summary(await self._keep_order(whole=not assignment.after))
        job.high, job.medium, job.low = summary.high, summary.medium, summary.low
        self._step.change(
            residents=job.residents, scored=job.scored, skipped=job.skipped, sent=job.sent,
            high=job.high, medium=job.medium, low=job.low,
        )  # fmt: skip
        self._step.add(patch(PropertyState, job.property_id, changes={"latest": summary}))
        log.info("calculated", job=job.id, property=job.property_id, scored=job.scored)
        return {"scored": job.scored, "skipped": job.skipped}

    async def _assignment(self) -> Assignment:
        job = self._job
        found = await self._store.get(Property, job.property_id)
        if found is None:
            # Invalid, so that the run ends here: asking again would not bring the property back.
            raise InvalidError(f"property {job.property_id!r} was removed since", "property")
        return Assignment(
            tenant_id=job.tenant_id, property_id=job.property_id, zone=found.doc.time_zone,
            as_of=job.as_of_date, rules=job.rules, calculated_at=job.calculated_at, after=job.after,
            page=self._page,
        )  # fmt: skip

    async def _load_endpoint(self) -> None:
        """Load the endpoint and the tiers to send; the run's rules were fixed when it was requested."""
        if self._job.send == "nothing":
            return
        endpoint = await self._store.get(RmsEndpoint, self._job.property_id)
        if endpoint is not None:
            self._endpoint = endpoint.doc
            self._send = ("high",) if self._job.send == "high" else FLAGGED

    async def _keep_all(self, pages: AsyncIterator[list[Scored]]) -> None:
        """One lot is being kept while the next is scored; never two."""
        keeping: asyncio.Future[None] | None = None
        try:
            async for page in pages:
                async for lot in self._lots(page):
                    if keeping is not None:
                        await keeping
                    keeping = asyncio.ensure_future(self._keep(lot))
                    # The lot is on its way before the next one is scored.
                    await asyncio.sleep(0)
            if keeping is not None:
                await keeping
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)

    async def _lots(self, page: list[Scored]) -> AsyncIterator[_Lot]:
        """The page in parts that fit a commit beside how far the run came."""
        room = self._store.capabilities.writes_max - 1
        # Each resident takes a score and perhaps an event.
        lot, size = _Lot(), min(TURN, room // 2)
        for start in range(0, len(page), size):
            some = page[start : start + size]
            writes = [create_encoded(RiskScore, one.score) for one in some if one.score is not None]
            events = self._events(some)
            if len(lot.writes) + len(writes) + len(events) > room:
                yield lot
                lot = _Lot()
            lot.add(some, [*writes, *events], sent=len(events))
            await asyncio.sleep(0)
        yield lot

    async def _keep(self, lot: _Lot) -> None:
        """The scores, and how far the run has come, in one commit, while the run is still ours."""
        job = self._job
        job.scored += lot.scored
        job.skipped += lot.skipped
        # Events for a disabled endpoint are on record as skipped, and not sent.
        if self._endpoint is not None and self._endpoint.status != "disabled":
            job.sent += lot.sent
        job.after = lot.after
        changes = {name: getattr(job, name) for name in ("residents", "scored", "skipped", "sent", "after")}
        progress = patch(JOBS.run, job.id, changes=changes, expect=Fence(job.fence))
        await self._store.commit(progress, *lot.writes)
        self._endings += lot.endings
        await self._runs.raise_if_cancelled(job.id)

    async def _keep_order(self, *, whole: bool) -> list[Ending]:
        """Who leaves when, once everybody is scored; what an earlier worker scored is read again."""
        endings = self._endings if whole else [one async for one in self._kept_endings()]
        job = self._job
        writes = list(LeaseEndOrder(self._store, job.property_id, job.calculated_at).writes(endings))
        for start in range(0, len(writes), ORDERS_A_COMMIT):
            ours = check(JOBS.run, job.id, expect=Fence(job.fence))
            await self._store.commit(ours, *writes[start : start + ORDERS_A_COMMIT])
        return endings

    async def _kept_endings(self) -> AsyncIterator[Ending]:
        query = run_scores(self._job.property_id, self._job.calculated_at, tiers=TIERS)
        async for one in self._store.scan(query.limit(1_000)):
            yield ending(one.doc.days_to_expiry, one.doc.resident_id, one.doc.risk_tier)

    def _events(self, some: Sequence[Scored]) -> list[Write]:
        """The events of residents in the tiers to send."""
        if self._endpoint is None:
            return []
        now, writes = self._store.clock.now(), list[Write]()
        for one in some:
            if one.score is not None and one.tier in self._send:
                writes += self._outbox.writes(
                    event_of(msgspec.json.decode(one.score, type=RiskScore), now), [self._endpoint]
                )
        return writes

    def _summary(self, endings: Sequence[Ending]) -> Summary:
        """Counted in all that is kept, so that it is right also after a crash."""
        job, tiers = self._job, Counter(tier for _, _, tier in endings)
        return Summary(
            job_id=job.id, calculated_at=job.calculated_at, as_of_date=job.as_of_date,
            total_residents=len(endings), skipped=job.skipped,
            high=tiers["high"], medium=tiers["medium"], low=tiers["low"],
        )  # fmt: skip
