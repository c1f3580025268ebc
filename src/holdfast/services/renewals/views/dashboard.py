"""A property's residents by risk: filtered, sorted and found on the server, with trend and delivery."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from holdfast.service import Page, PageRequest
from holdfast.services.renewals.domain.scoring import TIERS
from holdfast.services.renewals.jobs.risk_events import delivery_id_of
from holdfast.services.renewals.models import DeliveryState, RiskScore, Summary, Unit
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.deliveries import RmsDeliveries
from holdfast.services.renewals.queries.portfolio import Portfolio, Sort
from holdfast.services.renewals.queries.resident_search import FOUND_MAX, find_residents
from holdfast.services.renewals.views.property_header import PropertyHeader, load_header
from holdfast.services.renewals.views.reasons import ScoreReason, reasons_of

ROWS: Final = 30
NOTICES: Final = 5
# How many runs a trend goes back, and how many can be chosen without leaving the page.
RUNS: Final = 8
CHOICES: Final = 24
NOTICE: Final = "notice given"
ALL: Final = "all"
SHOWN: Final = (ALL, *TIERS, NOTICE)


class ResidentRow(msgspec.Struct, frozen=True, kw_only=True):
    """A resident as the dashboard shows them; `trend` is oldest first, `now` is of the latest run."""

    score: RiskScore
    unit: str
    reasons: list[ScoreReason]
    trend: list[int]
    delivery: DeliveryState | None
    now: RiskScore | None


class Selected(msgspec.Struct, frozen=True, kw_only=True):
    """What is selected at: whose run, which of its residents, the run it is held against if it is old, and
    those before it, the newest first."""

    property_id: str
    run: Summary
    latest: Summary | None
    shown: str
    sort: Sort
    wanted: str
    cursor: str | None
    before: Sequence[Summary]


class Dashboard:
    """What the page of one property shows, by its latest run or by one before it."""

    def __init__(self, renewals: Renewals) -> None:
        self._renewals = renewals

    async def data(self, ask: PageRequest) -> Mapping[str, Any]:
        head = await load_header(self._renewals, ask.tenant_id, ask.path["property_id"])
        portfolio = self._renewals.portfolio(ask.tenant_id)
        shown, wanted = ask.choice("tier", SHOWN, default=ALL), ask.text("q")
        sort: Any = ask.choice("sort", ("score", "days"), default="score")
        run = await self._run(ask, head)
        data: dict[str, Any] = {
            "title": head.property.name, "head": head, "shown": shown, "sort": sort, "wanted": wanted,
            "rows": [], "after": None, "notices": [], "notice_count": 0, "found_max": FOUND_MAX,
            "run": run, "earlier": run is not head.run, "runs": [],
        }  # fmt: skip
        if run is None:
            return data
        runs, _ = await portfolio.runs.all(head.property.id, limit=CHOICES)
        selected = Selected(
            property_id=head.property.id, run=run, latest=None if run is head.run else head.run, shown=shown,
            sort=sort, wanted=wanted, cursor=ask.cursor, before=await _before(portfolio, run, runs, head),
        )  # fmt: skip
        count, found = await asyncio.gather(
            portfolio.count_notices(head.property.id), self._found(portfolio, selected)
        )
        choices = runs if run in runs else [*runs, run]
        return {**data, "notice_count": count, "runs": choices, **found}

    async def _run(self, ask: PageRequest, head: PropertyHeader) -> Summary | None:
        """The run the address names; the latest where it names none."""
        id = ask.text("run")
        if not id or (head.run is not None and id == head.run.job_id):
            return head.run
        return await self._renewals.portfolio(ask.tenant_id).runs.get(head.property.id, id)

    async def _found(self, portfolio: Portfolio, selected: Selected) -> dict[str, Any]:
        """The rows asked for; on the first page of all, those who gave notice stand before them."""
        property_id, run = selected.property_id, selected.run
        if selected.wanted:
            ids = await find_residents(portfolio.store, property_id, selected.wanted)
            found = sorted(await portfolio.scores_of(ids, run), key=_BY[selected.sort])
            return {"rows": await self._rows(portfolio, selected, found)}
        if selected.shown == NOTICE:
            scores, after = await portfolio.notices(property_id, run, limit=ROWS, cursor=selected.cursor)
            return {"rows": await self._rows(portfolio, selected, scores), "after": after}
        tiers: Any = TIERS if selected.shown == ALL else (selected.shown,)
        page, first = await asyncio.gather(
            portfolio.risk(
                run, property_id, tiers=tiers, sort=selected.sort, limit=ROWS, cursor=selected.cursor
            ),
            _first(portfolio, selected),
        )
        rows = await self._rows(portfolio, selected, [*first, *page.docs])
        return {"notices": rows[: len(first)], "rows": rows[len(first) :], "after": page.cursor}

    async def _rows(
        self, portfolio: Portfolio, selected: Selected, scores: Sequence[RiskScore]
    ) -> list[ResidentRow]:
        ids = [one.resident_id for one in scores]
        units, deliveries, trends, now = await asyncio.gather(
            portfolio.store.get_many(Unit, [one.unit_id for one in scores]),
            RmsDeliveries(portfolio.store).get_many([delivery_id_of(one) for one in scores]),
            _trends(portfolio, selected, scores),
            portfolio.scores_of(ids if selected.latest else (), selected.latest or selected.run),
        )
        latest = {one.resident_id: one for one in now}
        return [
            ResidentRow(score=score, unit=unit.doc.unit_number if unit else score.unit_id, delivery=delivery,
                reasons=reasons_of(score), trend=trends[score.resident_id],
                now=latest.get(score.resident_id))
            for score, unit, delivery in zip(scores, units, deliveries, strict=True)
        ]  # fmt: skip


async def _first(portfolio: Portfolio, selected: Selected) -> list[RiskScore]:
    """Those who have given notice by now; an earlier run is shown as it was, in one list."""
    if selected.shown != ALL or selected.cursor is not None or selected.latest is not None:
        return []
    return (await portfolio.notices(selected.property_id, selected.run, limit=NOTICES))[0]


async def _before(
    portfolio: Portfolio, run: Summary, newest: Sequence[Summary], head: PropertyHeader
) -> Sequence[Summary]:
    """The runs a trend goes back to."""
    if run is not head.run:
        newest, _ = await portfolio.runs.all(head.property.id, until=run.calculated_at, limit=RUNS)
    return [one for one in newest[:RUNS] if one.calculated_at < run.calculated_at]


async def _trends(
    portfolio: Portfolio, selected: Selected, scores: Sequence[RiskScore]
) -> dict[str, list[int]]:
    """Each resident's scores of the runs up to this one, by one read of their keys."""
    ids = [one.resident_id for one in scores]
    before = await portfolio.scores_of_runs(ids, [run.calculated_at for run in reversed(selected.before)])
    trends: dict[str, list[int]] = {id: [] for id in ids}
    for one in before:
        trends[one.resident_id].append(one.risk_score)
    for id, now in {one.resident_id: one.risk_score for one in scores}.items():
        trends[id].append(now)
    return trends


def _days(score: RiskScore) -> tuple[bool, int]:
    # As the index has it: whoever lives from month to month can leave at any time.
    return score.days_to_expiry is not None, score.days_to_expiry or 0


_BY: Final[dict[str, Any]] = {"score": lambda score: -score.risk_score, "days": _days}


def pages(renewals: Renewals) -> list[Page]:
    async def runs(ask: PageRequest) -> Mapping[str, Any]:
        head = await load_header(renewals, ask.tenant_id, ask.path["property_id"])
        found = renewals.portfolio(ask.tenant_id).runs
        rows, after = await found.all(head.property.id, limit=ROWS, cursor=ask.cursor)
        return {"title": f"Runs of {head.property.name}", "head": head, "rows": rows, "after": after}

    return [
        Page(
            path="/properties/{property_id}", title="Property", template="property.html",
            data=Dashboard(renewals).data, live=("renewals",), nav=False,
        ),
        Page(
            path="/properties/{property_id}/runs", title="Runs", template="runs.html", data=runs,
            live=("renewals",), nav=False,
        ),
    ]  # fmt: skip
