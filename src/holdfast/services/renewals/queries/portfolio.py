"""One portfolio's properties, runs and scores."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.errors import BadIdError, ConflictError, InvalidError
from holdfast.services.renewals.domain.scoring import (
    FLAGGED,
    TIERS,
    Thresholds,
    Tier,
    Weights,
    rescore,
    tier_of,
)
from holdfast.services.renewals.models import Property, PropertyState, Resident, RiskScore, Summary
from holdfast.services.renewals.queries.finished_runs import FinishedRuns, count_of
from holdfast.services.renewals.queries.history import History
from holdfast.services.renewals.queries.lease_end_order import LeaseEndOrder, ending
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.services.renewals.queries.rules import rules_of
from holdfast.services.renewals.queries.scores import run_scores, scan_run
from holdfast.store import Query, QueryPage, Store

Sort = Literal["score", "days"]
# Each of an order's stretches is as large as hundreds of other writes.
WRITES_AT_ONCE: Final = 20


class PropertySummary(msgspec.Struct, frozen=True, rename="camel"):
    """A property and what its latest finished run came to."""

    property_id: str
    name: str
    city: str
    latest: Summary | None
    job_id: str | None


class WhatIf(msgspec.Struct, frozen=True, rename="camel"):
    """How a run's residents would be judged by other weights and thresholds. Nothing is stored."""

    job_id: str
    risk_tiers: dict[Tier, int]
    before: dict[Tier, int]
    moved: int
    examples: list[TierChange]


class TierChange(msgspec.Struct, frozen=True, rename="camel"):
    resident_id: str
    name: str
    score: int
    new_score: int
    tier: Tier
    new_tier: Tier


class Portfolio:
    """All properties of one tenant.

    Example: `page = await Portfolio(store.tenant("-")).risk(run, "property-7", tiers=["high"])`
    """

    def __init__(self, store: Store) -> None:
        self.store, self.runs = store, FinishedRuns(store)

    async def property(self, property_id: str) -> Property:
        return (await get_or_404(self.store, Property, property_id, what="property")).doc

    async def summaries(
        self, *, limit: int, cursor: str | None = None
    ) -> tuple[list[PropertySummary], str | None]:
        """Properties by name, each with its latest run."""
        page = await self.store.query(Query(Property).order_by("name").limit(limit).after(cursor))
        states = await self.store.get_many(PropertyState, [one.id for one in page.docs])
        rows = []
        for one, state in zip(page.docs, states, strict=True):
            latest, job_id = (None, None) if state is None else (state.doc.latest, state.doc.job_id)
            rows.append(PropertySummary(one.id, one.name, one.city, latest, job_id))
        return rows, page.cursor

    async def risk(
        self,
        run: Summary,
        property_id: str,
        *,
        tiers: Sequence[Tier] = TIERS,
        sort: Sort = "score",
        limit: int = 50,
        cursor: str | None = None,
    ) -> QueryPage[RiskScore]:
        """A run's scores, the most at risk or the soonest to end first."""
        if sort == "days":
            return await self._soonest(run, property_id, tiers=tiers, limit=limit, cursor=cursor)
        query = run_scores(property_id, run.calculated_at, tiers=tiers)
        return await self.store.query(query.limit(limit).after(cursor))

    async def _soonest(
        self, run: Summary, property_id: str, *, tiers: Sequence[Tier], limit: int, cursor: str | None
    ) -> QueryPage[RiskScore]:
        soonest = LeaseEndOrder(self.store, property_id, run.calculated_at)
        page = await soonest.page(tiers, limit=limit, cursor=cursor)
        if page.docs or cursor is not None or not count_of(run, tiers):
            return page
        # A run from before the order was written down: whoever asks first writes it.
        scores = scan_run(self.store, property_id, run.calculated_at, tiers=TIERS)
        endings = [ending(one.days_to_expiry, one.resident_id, one.risk_tier) async for one in scores]
        # The first stretch last, in the last commit: where it is there, all are.
        writes, most = [*soonest.writes(endings)][::-1], WRITES_AT_ONCE
        for start in range(0, len(writes), most):
            await self.store.commit(*writes[start : start + most])
        return await soonest.page(tiers, limit=limit)

    async def notices(
        self, property_id: str, run: Summary, *, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[RiskScore], str | None]:
        """Those who gave notice, with their scores: they are shown before everybody else."""
        page = await self.store.query(_gave_notice(property_id).limit(limit).after(cursor))
        return await self.scores_of([one.id for one in page.docs], run), page.cursor

    async def count_notices(self, property_id: str) -> int:
        return await self.store.count(_gave_notice(property_id))

    async def scores_of(self, resident_ids: Sequence[str], run: Summary) -> list[RiskScore]:
        """These residents' scores of one run, where they have one."""
        return await self.scores_of_runs(resident_ids, [run.calculated_at])

    async def scores_of_runs(
        self, resident_ids: Sequence[str], calculated_at: Sequence[datetime]
    ) -> list[RiskScore]:
        """The same of several runs, run after run."""
        times: list[str] = [msgspec.to_builtins(at) for at in calculated_at]
        ids = [f"{at}_{id}" for at in times for id in dict.fromkeys(resident_ids)]
        found = await self.store.get_many(RiskScore, ids)
        return [one.doc for one in found if one is not None]

    async def history(
        self, resident_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> QueryPage[RiskScore]:
        """A resident's scores of finished runs, the newest first."""
        await get_or_404(self.store, Resident, resident_id, what="resident")
        return await History(self.store).page(resident_id, limit=limit, cursor=cursor)

    async def what_if(
        self,
        property_id: str,
        *,
        weights: Weights | None = None,
        thresholds: Thresholds | None = None,
        examples: int = 20,
    ) -> WhatIf:
        """The latest run judged by other rules; those left out are the property's own."""
        run, own = await self.require_run(property_id), await rules_of(self.store, property_id)
        weights, thresholds = weights or own.weights, thresholds or own.thresholds
        tiers: dict[Tier, int] = {"high": 0, "medium": 0, "low": 0}
        moved, first = 0, list[TierChange]()
        async for score in scan_run(self.store, property_id, run.calculated_at, tiers=TIERS):
            change = _rejudge(score, weights, thresholds=thresholds)
            tiers[change.new_tier] += 1
            if change.new_tier != change.tier:
                moved += 1
                first += [change] if len(first) < examples else ()
        before: dict[Tier, int] = {"high": run.high, "medium": run.medium, "low": run.low}
        return WhatIf(run.job_id, tiers, before, moved, first)

    async def flagged(self, residents: Sequence[str], run: Summary, property_id: str) -> list[RiskScore]:
        """The scores of those named who are flagged in a run of this property."""
        try:
            scores = await self.scores_of(residents, run)
        except BadIdError as fault:
            raise InvalidError(fault.message, "residents") from None
        return [one for one in scores if one.property_id == property_id and one.risk_tier in FLAGGED]

    async def require_run(self, property_id: str) -> Summary:
        """The latest finished run; ConflictError where there is none."""
        run = await self.runs.choose(property_id)
        if run is None:
            raise ConflictError(f"property {property_id!r} was not calculated yet; calculate it first")
        return run


def _gave_notice(property_id: str) -> Query[Resident]:
    return Query(Resident).where("property_id", "==", property_id).where("status", "==", "notice_given")


def _rejudge(score: RiskScore, weights: Weights, *, thresholds: Thresholds) -> TierChange:
    points = rescore(score.days_to_expiry, score.signals, weights)
    return TierChange(
        score.resident_id, score.name, score.risk_score, points, score.risk_tier,
        tier_of(points, thresholds),
    )  # fmt: skip
