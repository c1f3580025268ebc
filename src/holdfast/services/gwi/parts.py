"""What the service adds to the process."""

from __future__ import annotations

from holdfast.service import AuditPart, Context, MeterPart, Parts, RunPart
from holdfast.services.gwi.jobs import jobs_of
from holdfast.services.gwi.models.records import AUDIT, METER
from holdfast.services.gwi.models.runs import RUNS
from holdfast.services.gwi.models.work import SignalQueue
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.signal_worker import SignalWorker


def build(context: Context) -> Parts:
    """Build the service's parts."""
    gwi = Gwi(context)
    return Parts(
        audits=[AuditPart(name="gwi", models=AUDIT)],
        meters=[MeterPart(name="gwi", models=METER)],
        runs=[RunPart(models=RUNS)],
        jobs=jobs_of(gwi, context.audit),
        loops={"signals": SignalWorker(context.store, gwi.signals, context.audit)},
        queues={"signals": SignalQueue},
        operations=gwi,
    )
