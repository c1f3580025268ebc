"""Fixtures of tests of runs: a service's own models, and a running runner."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Literal

import msgspec

from holdfast.kit.runs import (
    RUN_CLAIM,
    RUN_LIFE,
    STEP_LIFE,
    BackOff,
    RunFields,
    Runner,
    Step,
    StepFields,
    StepSummary,
    Workflow,
)
from holdfast.model import Document, Index, TimestampId, document
from holdfast.store import Store

SOON = BackOff(first_s=0.01)


@document("results/{id}", tenant="tenant_id")
class Result(Document):
    id: str
    tenant_id: str = "acme"
    text: str = ""
    count: int = 1


class OwnSummary(StepSummary, rename="camel", kw_only=True):
    name: str = msgspec.field(name="agent")


@document("own_runs/{id}", id=TimestampId("run"), tenant="tenant_id", lifecycle=RUN_LIFE, claim=RUN_CLAIM)
class OwnRun(RunFields, rename="camel"):
    """A service's run: its own collection, its own fields beside the kit's."""

    repo_id: str
    type: Literal["w", "other"]
    steps: list[OwnSummary] = []  # type: ignore[assignment]
    approval_status: str = "none"


@document("own_runs/{run_id}/steps/{id}", tenant="tenant_id", indexes=[Index("number")], lifecycle=STEP_LIFE)
class OwnStep(StepFields, rename="camel"):
    name: str = msgspec.field(name="agent")


@contextlib.asynccontextmanager
async def carried(store: Store, *workflows: Workflow, **settings: Any) -> AsyncIterator[Runner]:
    """A worker that carries runs while the block runs."""
    runner, stop = Runner(store.privileged(), workflows, **settings), asyncio.Event()
    working = asyncio.create_task(runner.run(stop))
    try:
        yield runner
    finally:
        stop.set()
        await asyncio.wait_for(working, 60)


def simple(*acts: Callable[[Step], Awaitable[Any]], **settings: Any) -> Workflow:
    workflow = Workflow("w")
    for number, act in enumerate(acts, 1):
        workflow.step(name=f"s{number}", **({"back_off": SOON} | settings))(act)
    return workflow


async def one(step: Step) -> dict[str, int]:
    step.state["seen"] = [*step.state.get("seen", []), step.name]
    return {"n": step.input["n"] + 1}
