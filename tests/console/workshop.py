"""A service that works in steps: some runs are the kit's, some its own; tests say when a step may go on."""

from __future__ import annotations

import asyncio
from typing import Any

from holdfast.kit.runs import (
    RUN_CLAIM,
    RUN_INDEXES,
    RUN_LIFE,
    RunDocument,
    RunFields,
    RunModels,
    Runner,
    Runs,
    Step,
    StepWaits,
    Workflow,
)
from holdfast.model import TimestampId, document
from holdfast.runtime import Runtime
from holdfast.service import Context, Parts, RunPart, Service


@document(
    "orders/{id}", id=TimestampId("run"), tenant="tenant_id", indexes=RUN_INDEXES, lifecycle=RUN_LIFE,
    claim=RUN_CLAIM,
)  # fmt: skip
class Order(RunFields, rename="camel"):
    """A run in a collection of the service's own."""


ORDERS = RunModels(run=Order)


class Workshop:
    """Measures, saws and glues. Sawing sets `sawing` and holds until `saw` is set; rotten wood breaks unless
    it is `mended`; a run waits where the glue is not `dry`."""

    def __init__(self) -> None:
        self.sawing, self.saw = asyncio.Event(), asyncio.Event()
        self.dry, self.mended = True, False
        self.chair = Workflow("chair")
        self.chair.step()(self.measure)
        self.chair.step(name="saw", retries=0)(self.cut)
        self.chair.step()(self.glue)
        self.stool = Workflow("stool")
        self.stool.step(name="saw", retries=0)(self.cut)

    async def measure(self, step: Step) -> dict[str, int]:
        return {"legs": 4}

    async def cut(self, step: Step) -> dict[str, int]:
        self.sawing.set()
        await self.saw.wait()
        if step.run.input == {"wood": "rotten"} and not self.mended:
            raise ValueError("the wood <b>broke</b>")
        return {"cut": 4}

    async def glue(self, step: Step) -> dict[str, Any]:
        if not self.dry:
            raise StepWaits
        return {"done": True, "apiToken": "hidden"}

    def service(self, *, works: bool = True) -> Service:
        def build(context: Context) -> Parts:
            store, flows = context.store.privileged(), [self.chair, self.stool]
            runners = {"runs": Runner(store, flows), "orders": Runner(store, flows, models=ORDERS)}
            return Parts(
                loops=runners if works else {},
                runs=[RunPart(models=ORDERS)],
            )

        return Service(name="workshop", summary="Makes chairs.", documents=[Order], build=build)


def runs_of(runtime: Runtime, tenant_id: str = "-", kind: type[RunFields] = RunDocument) -> Runs:
    runs = runtime.runs(tenant_id)
    return runs["orders" if kind is Order else "holdfast_runs"]
