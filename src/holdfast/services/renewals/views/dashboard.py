"""A property's residents by risk: filtered, sorted and found on the server, with trend and delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.service import Ask, Page
from holdfast.services.renewals.deliveries import DeliveryShown
from holdfast.services.renewals.finding import FOUND_MAX, find_residents
from holdfast.services.renewals.keeper import Renewals
from holdfast.services.renewals.models import CalculationJob, RiskScore, Summary, Unit
from holdfast.services.renewals.scoring import TIERS
from holdfast.services.renewals.views.heading import heading
from holdfast.store import Query

ROWS: Final = 30
NOTICES: Final = 5
# How many runs a trend goes back.
RUNS: Final = 8
NOTICE: Final = "notice given"
ALL: Final = "all"
SHOWN: Final = (ALL, *TIERS, NOTICE)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A resident as the dashboard shows them; `trend` is oldest first."""

    score: RiskScore
    unit: str
    trend: list[int]
    delivery: DeliveryShown | None


class Dashboard:
    """What the page of one property shows."""

    def __init__(self, renewals: Renewals) -> None:
        self._renewals = renewals

    async def data(self, ask: Ask) -> Mapping[str, Any]:
        head = await heading(self._renewals, ask.tenant_id, ask.path["property_id"])
        shown = ask.choice("tier", SHOWN, default=ALL)
        sort, wanted = ask.choice("sort", ("score", "days"), default="score"), ask.text("q")
        told: dict[str, Any] = {
            "title": head.property.name, "head": head, "shown": shown, "sort": sort, "wanted": wanted,
            "rows": [], "after": None, "notices": [], "notice_count": 0, "found_max": FOUND_MAX,
        }  # fmt: skip
        if head.run is None:
            return told
        count, found = await asyncio.gather(
            self._renewals.portfolio(ask.tenant_id).count_notices(head.property.id),
            self._found(ask, head.run, shown=shown, sort=sort, wanted=wanted),
        )
        return {**told, "notice_count": count, **found}

    async def _found(self, ask: Ask, run: Summary, *, shown: str, sort: str, wanted: str) -> dict[str, Any]:
        """The rows asked for; on the first page of all, those who gave notice stand before them."""
        portfolio, property_id = self._renewals.portfolio(ask.tenant_id), ask.path["property_id"]
        if wanted:
            ids = await find_residents(portfolio.store, property_id, wanted)
            found = sorted(await portfolio.scores_of(ids, run), key=_BY[sort])
            return {"rows": await self._rows(ask, found)}
        if shown == NOTICE:
            scores, after = await portfolio.notices(property_id, run, limit=ROWS, cursor=ask.cursor)
            return {"rows": await self._rows(ask, scores), "after": after}
        tiers: Any = TIERS if shown == ALL else (shown,)
        order: Any = sort
        page, first = await asyncio.gather(
            portfolio.risk(run, property_id, tiers=tiers, sort=order, limit=ROWS, cursor=ask.cursor),
            self._first(ask, run) if shown == ALL and ask.cursor is None else _none(),
        )
        rows = await self._rows(ask, [*first, *page.docs])
        return {"notices": rows[: len(first)], "rows": rows[len(first) :], "after": page.cursor}

    async def _first(self, ask: Ask, run: Summary) -> list[RiskScore]:
        portfolio = self._renewals.portfolio(ask.tenant_id)
        return (await portfolio.notices(ask.path["property_id"], run, limit=NOTICES))[0]

    async def _rows(self, ask: Ask, scores: Sequence[RiskScore]) -> list[Row]:
        store, ids = self._renewals.store(ask.tenant_id), [one.resident_id for one in scores]
        units, deliveries, trends = await asyncio.gather(
            store.get_many(Unit, [one.unit_id for one in scores]),
            self._renewals.deliveries(ask.tenant_id).of_scores(scores),
            self._trends(ask, ids),
        )
        return [
            Row(score=score, unit=unit.doc.unit_number if unit else score.unit_id, delivery=delivery,
                trend=trends[score.resident_id])
            for score, unit, delivery in zip(scores, units, deliveries, strict=True)
        ]  # fmt: skip

    async def _trends(self, ask: Ask, ids: Sequence[str]) -> dict[str, list[int]]:
        """Each resident's scores of the last runs, by one read of their keys."""
        portfolio = self._renewals.portfolio(ask.tenant_id)
        query = Query(CalculationJob).where("property_id", "==", ask.path["property_id"])
        query = query.where("status", "==", "completed").order_by("-calculated_at").limit(RUNS)
        jobs = (await portfolio.store.query(query)).docs
        scores = await portfolio.scores_of_runs(ids, [job.calculated_at for job in reversed(jobs)])
        trends: dict[str, list[int]] = {id: [] for id in ids}
        for one in scores:
            trends[one.resident_id].append(one.risk_score)
        return trends


async def _none() -> list[RiskScore]:
    return []


def _days(score: RiskScore) -> tuple[bool, int]:
    # As the index has it: whoever lives from month to month can leave at any time.
    return score.days_to_expiry is not None, score.days_to_expiry or 0


_BY: Final[dict[str, Any]] = {"score": lambda score: -score.risk_score, "days": _days}


def pages(renewals: Renewals) -> list[Page]:
    return [
        Page(
            path="/properties/{property_id}", title="Property", template="property.html",
            data=Dashboard(renewals).data, live=("renewals",), nav=False,
        )
    ]  # fmt: skip
