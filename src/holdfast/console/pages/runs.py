"""What works in steps: lists by state and workflow, and each run with its steps over time."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast, get_args

from markupsafe import Markup

from holdfast.console.plots import stretch
from holdfast.kit.runs import RunFields, StepSummary
from holdfast.kit.runs.models import RunStatus
from holdfast.operations.outboxes import own_fields
from holdfast.operations.runs import KIT_RUNS, get, runs_in
from holdfast.rendering.formatting import span, tone
from holdfast.runtime import Runtime
from holdfast.runtime.document_browser import redact_value
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_ALL: Final = "all"
_STATES: Final = (_ALL, *get_args(RunStatus))


def standing(run: RunFields, now: datetime) -> str:
    """Who has the run in hand, or what it waits for."""
    if run.completed_at is not None:
        return ""
    if run.held_by:
        past = run.due_at is None or run.due_at <= now
        return "its worker is gone; another takes it over" if past else f"in the hands of {run.held_by}"
    if run.due_at is None:
        return "waits for something to happen"
    return "waits for a worker" if run.due_at <= now else "waits for its time"


def bar(step: StepSummary, run: RunFields, now: datetime) -> Markup:
    """When the step was under way, within the time of the whole run."""
    first = run.started_at or run.created_at
    whole_s = max(((run.completed_at or now) - first).total_seconds(), 0.001)
    if step.started_at is None:
        return stretch(0, 0, tone="calm", said="not begun")
    end = step.completed_at or now
    took_s = (end - step.started_at).total_seconds()
    said = f"{step.status}, {span(took_s)}"
    start_s = (step.started_at - first).total_seconds()
    return stretch(start_s / whole_s, (start_s + took_s) / whole_s, tone=tone(step.status), said=said)


class RunPages:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._clock = runtime, runtime.clock

    async def listed(self, ask: PageRequest) -> Mapping[str, Any]:
        collection = ask.text("collection") or KIT_RUNS
        state, type = ask.choice("status", _STATES, default=_ALL), ask.text("type")
        wanted = None if state == _ALL else cast(RunStatus, state)
        runs, now = runs_in(self._runtime, ask.tenant_id, collection), self._clock.now()
        page = await runs.page(status=wanted, type=type or None, limit=ROWS, cursor=ask.cursor)
        return {
            "rows": [(one, standing(one, now)) for one in page.docs], "after": page.cursor, "state": state,
            "states": _STATES, "type": type, "collection": collection,
            "collections": list(self._runtime.runs(ask.tenant_id)),
        }  # fmt: skip

    async def one(self, ask: PageRequest) -> Mapping[str, Any]:
        runs = runs_in(self._runtime, ask.tenant_id, ask.path["collection"])
        run = await get(self._runtime, ask.tenant_id, runs.collection, ask.path["run_id"])
        now = self._clock.now()
        # Who only looks on sees how far it is; what it works with may hold what is not for them.
        values = (
            {"about": own_fields(run, RunFields) or None, "input": run.input, "result": run.result}
            if ask.may("admin")
            else {}
        )
        return {
            "title": f"Run {run.id}", "tenant_id": run.tenant_id, "run": run,
            "collection": runs.collection, "retriable": runs.retriable,
            "standing": standing(run, now), "steps": [(step, bar(step, run, now)) for step in run.steps],
            "values": {name: redact_value(value) for name, value in values.items() if value is not None},
        }  # fmt: skip


def pages(runtime: Runtime) -> list[Page]:
    shown, live = RunPages(runtime), ("runs",)
    return [
        Page(
            path="/runs", title="Runs", template="runs.html", data=shown.listed, live=live, all_tenants=True
        ),
        Page(
            path="/runs/{collection}/{run_id}", title="Run", template="run.html", data=shown.one, live=live,
            nav=False, all_tenants=True,
        ),
    ]  # fmt: skip
