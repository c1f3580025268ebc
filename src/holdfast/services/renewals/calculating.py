"""Calculation runs: every resident of a property scored and kept, page by page, under the run's claim.

    start ──► job (one a property at a time) ──► runner claims it ──► lot by lot:
                                                  read ahead │ score │ keep scores and how far, in one commit
              a crash: the claim ends, another worker goes on after the last lot that was kept

Each lot lands under the run's fencing number, so a worker that has lost the run adds nothing to it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from datetime import datetime
from typing import Final, TypeVar

import structlog

from holdfast.errors import InvalidError
from holdfast.kit.outbox import Outbox
from holdfast.kit.runs import Step, Workflow
from holdfast.services.renewals.dates import zone_named
from holdfast.services.renewals.models import (
    JOBS,
    KINDS,
    CalculationJob,
    Property,
    PropertyState,
    RiskScore,
    RmsEndpoint,
    Summary,
)
from holdfast.services.renewals.reading import PAGE, Known, Moment, Reading
from holdfast.services.renewals.scoring import FLAGGED, TIERS, Tier, assess
from holdfast.services.renewals.triggering import event_of
from holdfast.store import Fence, Query, Store, Write, create, patch

T = TypeVar("T")
WORKFLOW: Final = "calculate"
RUN_LIMIT_S: Final = 3_600.0
# How many residents are scored before others on the event loop get their turn.
TURN: Final = 200
log: Final = structlog.get_logger("holdfast.renewals")


def workflow(store: Store, *, page: int = PAGE) -> Workflow:
    """What a calculation job does, so many residents at a time."""
    made = Workflow(WORKFLOW, limit_s=RUN_LIMIT_S)

    @made.step(limit_s=RUN_LIMIT_S)
    async def score(step: Step) -> dict[str, int]:
        return await Calculation(store.tenant(step.run.tenant_id), step, page=page).run()

    return made


class _Lot:
    """Residents whose scores are kept together."""

    __slots__ = ("after", "scored", "sent", "skipped", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.scored = self.skipped = self.sent = 0
        self.after = ""

    def add(self, resident_id: str, writes: Sequence[Write]) -> None:
        self.after = resident_id
        self.writes += writes
        self.scored += bool(writes)
        self.skipped += not writes
        self.sent += len(writes) > 1


class Calculation:
    """One run at work."""

    def __init__(self, store: Store, step: Step, *, page: int = PAGE) -> None:
        assert isinstance(step.run, CalculationJob)
        self._store, self._step, self._job, self._page = store, step, step.run, page
        self._send = tuple[Tier, ...]()
        self._endpoint: RmsEndpoint | None = None
        self._outbox = Outbox(store, kinds=KINDS)

    async def run(self) -> dict[str, int]:
        """Score whoever is not scored yet; the summary lands in the commit that ends the run."""
        job = self._job
        reading = Reading(self._store, await self._moment(), page=self._page)
        await self._learn_whom_to_tell()
        self._job.residents = await reading.count()
        async with contextlib.aclosing(_ahead(reading.pages(job.after))) as pages:
            await self._keep_all(pages)
        summary = await self._summary()
        job.high, job.medium, job.low = summary.high, summary.medium, summary.low
        self._step.change(
            residents=job.residents, scored=job.scored, skipped=job.skipped, sent=job.sent,
            high=job.high, medium=job.medium, low=job.low,
        )  # fmt: skip
        self._step.add(patch(PropertyState, job.property_id, changes={"latest": summary}))
        log.info("calculated", job=job.id, property=job.property_id, scored=job.scored)
        return {"scored": job.scored, "skipped": job.skipped}

    async def _moment(self) -> Moment:
        found = await self._store.get(Property, self._job.property_id)
        if found is None:
            # Invalid, so that the run ends here: asking again would not bring the property back.
            raise InvalidError(f"property {self._job.property_id!r} was removed since", "property")
        return Moment(self._job.property_id, self._job.as_of_date, zone_named(found.doc.time_zone))

    async def _learn_whom_to_tell(self) -> None:
        """Who is told of to whom; by which rules is decided when a run is asked for, and stays."""
        if self._job.send == "nothing":
            return
        endpoint = await self._store.get(RmsEndpoint, self._job.property_id)
        if endpoint is not None:
            self._endpoint = endpoint.doc
            self._send = ("high",) if self._job.send == "high" else FLAGGED

    async def _keep_all(self, pages: AsyncIterator[list[Known]]) -> None:
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

    async def _lots(self, page: list[Known]) -> AsyncIterator[_Lot]:
        """The page scored, in parts that fit a commit beside how far the run came."""
        room = self._store.capabilities.writes_max - 1
        lot = _Lot()
        for number, known in enumerate(page, 1):
            if number % TURN == 0:
                await asyncio.sleep(0)
            writes = () if known.facts is None else self._writes(known)
            if len(lot.writes) + len(writes) > room:
                yield lot
                lot = _Lot()
            lot.add(known.resident_id, writes)
        yield lot

    async def _keep(self, lot: _Lot) -> None:
        """The scores, and how far the run has come, in one commit, while the run is still ours."""
        job = self._job
        job.scored += lot.scored
        job.skipped += lot.skipped
        # What is put out for a disabled endpoint is on record as skipped, and not sent.
        if self._endpoint is not None and self._endpoint.status != "disabled":
            job.sent += lot.sent
        job.after = lot.after
        changes = {name: getattr(job, name) for name in ("residents", "scored", "skipped", "sent", "after")}
        progress = patch(JOBS.run, job.id, changes=changes, expect=Fence(job.fence))
        await self._store.commit(progress, *lot.writes)

    def _writes(self, known: Known) -> Sequence[Write]:
        score = self._score(known)
        if score.risk_tier not in self._send or self._endpoint is None:
            return (create(score),)
        event = event_of(score, self._store.clock.now())
        return [create(score), *self._outbox.writes(event, [self._endpoint])]

    def _score(self, known: Known) -> RiskScore:
        job, facts = self._job, known.facts
        assert facts is not None
        found = assess(facts, as_of=job.as_of_date, rules=job.rules)
        return RiskScore(
            tenant_id=job.tenant_id, property_id=job.property_id, resident_id=known.resident_id,
            lease_id=facts.lease.id, unit_id=known.unit_id, name=known.name, notice_given=known.notice_given,
            as_of_date=job.as_of_date, risk_score=found.score, risk_tier=found.tier,
            days_to_expiry=found.days_to_expiry, signals=found.signals, calculated_at=job.calculated_at,
        )  # fmt: skip

    async def _summary(self) -> Summary:
        """Counted in what is kept, so that it is right also after a crash."""
        job = self._job
        high, medium, low = [
            await count_scores(self._store, job.property_id, job.calculated_at, tier=tier) for tier in TIERS
        ]
        return Summary(
            job_id=job.id, calculated_at=job.calculated_at, as_of_date=job.as_of_date,
            total_residents=high + medium + low, skipped=job.skipped, high=high, medium=medium, low=low,
        )  # fmt: skip


async def count_scores(store: Store, property_id: str, calculated_at: datetime, *, tier: Tier) -> int:
    query = Query(RiskScore).where("property_id", "==", property_id)
    query = query.where("calculated_at", "==", calculated_at).where("risk_tier", "==", tier)
    return await store.count(query.order_by("-risk_score"))


async def _ahead(pages: AsyncIterator[T]) -> AsyncGenerator[T, None]:
    """The same pages, the next one being read while the present one is worked on."""
    coming = asyncio.ensure_future(anext(pages, None))
    try:
        while (page := await coming) is not None:
            coming = asyncio.ensure_future(anext(pages, None))
            yield page
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
