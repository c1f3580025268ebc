"""Console pages of runs: lists, one run over time, those that wait for approval; and of usage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast, get_args

import msgspec

from holdfast.errors import InvalidError, NotFoundError
from holdfast.kit.metering.period_sums import days_of
from holdfast.kit.runs import StepSummary
from holdfast.kit.runs.models import RunStatus
from holdfast.service import Page, PageRequest
from holdfast.services.gwi.models.runs import AgentRun, RunType
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.operations.runs import RunFilter
from holdfast.services.gwi.operations.usage import MONTH, UsageSummary

ROWS: Final = 50
LIVE: Final = ("gwi", "runs")
_ALL: Final = "all"
_STATUSES: Final = (_ALL, *get_args(RunStatus))
_TYPES: Final = (_ALL, *get_args(RunType))


class StepBar(msgspec.Struct, frozen=True, kw_only=True):
    """When a step was under way, as parts of the run's whole time."""

    start: float
    end: float


def bar_of(step: StepSummary, run: AgentRun, now: datetime) -> StepBar:
    first = run.started_at or run.created_at
    whole_s = max(((run.completed_at or now) - first).total_seconds(), 0.001)
    if step.started_at is None:
        return StepBar(start=0.0, end=0.0)
    ended = step.completed_at or now
    start_s, end_s = (step.started_at - first).total_seconds(), (ended - first).total_seconds()
    return StepBar(start=start_s / whole_s, end=end_s / whole_s)


class RunViews:
    """Data of the pages."""

    def __init__(self, gwi: Gwi) -> None:
        self._gwi = gwi

    async def runs(self, ask: PageRequest) -> Mapping[str, Any]:
        status = ask.choice("status", _STATUSES, default=_ALL)
        type = ask.choice("type", _TYPES, default=_ALL)
        repo = ask.text("repo")
        wanted = RunFilter(
            status=None if status == _ALL else cast(RunStatus, status),
            type=None if type == _ALL or repo else cast(RunType, type), repo_id=repo or None,
        )  # fmt: skip
        page = await self._gwi.runs.page(ask.tenant_id, wanted, limit=ROWS, cursor=ask.cursor)
        return {
            "rows": page.docs, "after": page.cursor, "status": status, "statuses": _STATUSES, "type": type,
            "types": _TYPES, "repo": repo, "stats": await self._gwi.runs.stats(ask.tenant_id),
        }  # fmt: skip

    async def run(self, ask: PageRequest) -> Mapping[str, Any]:
        tenant_id, run_id = ask.tenant_id, ask.path["run_id"]
        run, now = await self._gwi.runs.get(tenant_id, run_id), self._gwi.runs.clock.now()
        steps = await self._gwi.runs.steps(tenant_id, run_id)
        events = (await self._gwi.runs.events(tenant_id, run_id)).docs if ask.may("admin") else []
        return {
            "title": f"Run {run.id}", "run": run, "events": events,
            "steps": [(one, bar_of(one, run, now)) for one in run.steps],
            "outputs": {one.id: one.output for one in steps if one.output is not None},
            "logs": await self._gwi.runs.logs(tenant_id, run_id),
        }  # fmt: skip

    async def approvals(self, ask: PageRequest) -> Mapping[str, Any]:
        wanted = RunFilter(approval_status="pending")
        page = await self._gwi.runs.page(ask.tenant_id, wanted, limit=ROWS, cursor=ask.cursor)
        return {"rows": [one for one in page.docs if one.completed_at is None], "after": page.cursor}

    async def _summary(self, tenant_id: str, month: str) -> UsageSummary | None:
        """The plan's limits; None for a tenant that is no organisation, such as the platform itself."""
        try:
            return await self._gwi.usage.summary(tenant_id, month=month)
        except NotFoundError:
            return None

    async def usage(self, ask: PageRequest) -> Mapping[str, Any]:
        month = ask.text("month") or self._gwi.usage.current_month
        if not re.fullmatch(MONTH, month):
            raise InvalidError("a month is written 2026-11", "month")
        days = days_of(month)
        by_day = (await self._gwi.usage.aggregate(ask.tenant_id, month=month)).days
        return {
            "month": month, "days": days,
            "summary": await self._summary(ask.tenant_id, month),
            "metrics": {
                name: [counts.get(day, 0) for day in days] for name, counts in sorted(by_day.items())
            },
            "facts": (await self._gwi.usage.facts(ask.tenant_id, limit=20)).docs,
        }  # fmt: skip


def pages(gwi: Gwi) -> list[Page]:
    views = RunViews(gwi)
    return [
        Page(path="/runs", title="Runs", template="runs.html", data=views.runs, live=LIVE),
        Page(path="/runs/{run_id}", title="Run", template="run.html", data=views.run, live=LIVE, nav=False),
        Page(
            path="/approvals", title="Approvals", template="approvals.html", data=views.approvals, live=LIVE
        ),
        Page(path="/usage", title="Usage", template="usage.html", data=views.usage, live=LIVE),
    ]
