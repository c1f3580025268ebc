"""One portfolio's risk, read and acted on: what routes, commands and pages all stand on."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.errors import BadIdError, ConflictError, InvalidError, NotFoundError
from holdfast.kit.outbox import Dispatcher
from holdfast.kit.runs import Workflow
from holdfast.services.renewals.domain.scoring import (
    DELINQUENT,
    FLAGGED,
    MARKET,
    NO_OFFER,
    TIERS,
    Thresholds,
    Tier,
    Weights,
    expiry_share,
    tier_of,
)
from holdfast.services.renewals.jobs.calculation_jobs import Jobs
from holdfast.services.renewals.jobs.risk_events import Triggered, Triggers, of_run, scan_run, scores_of_run
from holdfast.services.renewals.jobs.trigger_jobs import AuditHook, TriggerJobs, trigger_workflow
from holdfast.services.renewals.models import (
    Property,
    PropertyState,
    Resident,
    RiskScore,
    Summary,
    TriggerJob,
)
from holdfast.services.renewals.queries.finished_runs import FinishedRuns, count_of
from holdfast.services.renewals.queries.history import History
from holdfast.services.renewals.queries.lease_end_order import LeaseEndOrder, ending
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.services.renewals.queries.rules import RuleBook
from holdfast.store import Query, QueryPage, Store

Sort = Literal["score", "days"]
# How many the RMS is told of at once; of more by a job of their own.
AT_ONCE_MAX: Final = 10_000
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

    Example: `page = await Portfolio(store.tenant("-"), workflow).risk("property-7", tiers=["high"])`
    """

    def __init__(
        self,
        store: Store,
        workflow: Workflow,
        *,
        triggering: Workflow | None = None,
        local_dispatcher: Dispatcher | None = None,
    ) -> None:
        self.store = store
        self.jobs = Jobs(store, workflow)
        self.runs = FinishedRuns(store)
        self.triggers = Triggers(store, local_dispatcher=local_dispatcher)
        self.trigger_jobs = TriggerJobs(store, triggering or trigger_workflow(store))

    # -- properties -------------------------------------------------------------------------------

    async def property(self, property_id: str) -> Property:
        return (await get_or_404(self.store, Property, property_id, what="property")).doc

    async def standings(
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

    # -- risk -------------------------------------------------------------------------------------

    async def latest(self, property_id: str) -> Summary | None:
        """The latest finished run."""
        return await self.runs.choose(property_id)

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
        query = of_run(property_id, run.calculated_at, tiers=tiers)
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
        run, own = await self._must_have_run(property_id), await RuleBook(self.store).get(property_id)
        weights, thresholds = weights or own.weights, thresholds or own.thresholds
        tiers: dict[Tier, int] = {"high": 0, "medium": 0, "low": 0}
        count, shown = 0, list[TierChange]()
        async for score in scan_run(self.store, property_id, run.calculated_at, tiers=TIERS):
            moved = judged_anew(score, weights, thresholds=thresholds)
            tiers[moved.new_tier] += 1
            if moved.new_tier != moved.tier:
                count += 1
                shown += [moved] if len(shown) < examples else ()
        before: dict[Tier, int] = {"high": run.high, "medium": run.medium, "low": run.low}
        return WhatIf(run.job_id, tiers, before, count, shown)

    # -- triggering -------------------------------------------------------------------------------

    async def trigger(self, property_id: str, resident_id: str) -> Triggered:
        """Tell the RMS about one resident, by the property's latest run; never of who is not flagged."""
        run = await self._must_have_run(property_id)
        await get_or_404(self.store, Resident, resident_id, what="resident")
        scores = await self.scores_of([resident_id], run)
        if not scores or scores[0].property_id != property_id:
            raise NotFoundError(f"no score of resident {resident_id!r} in the latest run", "resident")
        if scores[0].risk_tier not in FLAGGED:
            raise ConflictError(f"resident {resident_id!r} is not flagged: the latest run says low risk")
        return await self.triggers.one(scores[0])

    async def trigger_many(
        self, property_id: str, *, tiers: Sequence[Tier] = FLAGGED, residents: Sequence[str] | None = None
    ) -> list[Triggered]:
        """The same for whole tiers, or for those of the residents named who are flagged."""
        _check_flagged(tiers)
        run = await self._must_have_run(property_id)
        if residents is not None:
            return await self.triggers.many(await self._flagged(residents, run, property_id))
        return await self.triggers.many(
            await scores_of_run(self.store, property_id, run.calculated_at, tiers=tiers)
        )

    async def trigger_tiers(
        self,
        property_id: str,
        *,
        tiers: Sequence[Tier] = FLAGGED,
        by: str = "",
        noting: AuditHook | None = None,
    ) -> list[Triggered] | TriggerJob:
        """The same for whole tiers: at once, or where they are a great many by a job of their own, whose
        commit `noting` adds to."""
        _check_flagged(tiers)
        run = await self._must_have_run(property_id)
        if count_of(run, tiers) > AT_ONCE_MAX:
            return await self.trigger_jobs.start(property_id, run, tiers=tiers, by=by, noting=noting)
        return await self.trigger_many(property_id, tiers=tiers)

    async def _flagged(self, residents: Sequence[str], run: Summary, property_id: str) -> list[RiskScore]:
        try:
            scores = await self.scores_of(residents, run)
        except BadIdError as fault:
            raise InvalidError(fault.message, "residents") from None
        return [one for one in scores if one.property_id == property_id and one.risk_tier in FLAGGED]

    async def _must_have_run(self, property_id: str) -> Summary:
        run = await self.latest(property_id)
        if run is None:
            raise ConflictError(f"property {property_id!r} was not calculated yet; calculate it first")
        return run


def _check_flagged(tiers: Sequence[Tier]) -> None:
    if not set(tiers) <= set(FLAGGED):
        raise InvalidError("only who is flagged is told of: high or medium", "tier")


def _gave_notice(property_id: str) -> Query[Resident]:
    return Query(Resident).where("property_id", "==", property_id).where("status", "==", "notice_given")


def judged_anew(score: RiskScore, weights: Weights, *, thresholds: Thresholds) -> TierChange:
    """A kept score beside what other rules make of it."""
    points = rescored(score, weights)
    return TierChange(
        score.resident_id, score.name, score.risk_score, points, score.risk_tier,
        tier_of(points, thresholds),
    )  # fmt: skip


def rescored(score: RiskScore, weights: Weights) -> int:
    """A kept score's signals by other weights."""
    points = (expiry_share(score.days_to_expiry) * weights.expiry + 50) // 100
    shares = ((DELINQUENT, weights.delinquency), (NO_OFFER, weights.no_offer), (MARKET, weights.market_rent))
    return points + sum(weight for name, weight in shares if score.signals[name].value is True)
