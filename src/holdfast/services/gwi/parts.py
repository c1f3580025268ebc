"""What the service adds to the process."""

from __future__ import annotations

from holdfast.service import AuditPart, Context, MeterPart, Parts
from holdfast.services.gwi.jobs import jobs_of
from holdfast.services.gwi.models.records import AUDIT, METER
from holdfast.services.gwi.models.work import SignalQueue
from holdfast.services.gwi.operations import Gwi
from holdfast.services.gwi.routes import ROUTES
from holdfast.services.gwi.run_execution import RunExecution, app_of
from holdfast.services.gwi.signal_worker import SignalWorker


def build(context: Context) -> Parts:
    """Build the service's parts."""
    execution = RunExecution(context, app_of(context))
    gwi = Gwi(context, execution)
    return Parts(
        routes=ROUTES,
        audits=[AuditPart(name="gwi", models=AUDIT)],
        meters=[MeterPart(name="gwi", models=METER)],
        runs=[execution.part],
        jobs=jobs_of(gwi, context.audit),
        loops={"signals": SignalWorker(context.store, gwi.signals, context.audit)},
        queues={"signals": SignalQueue},
        operations=gwi,
    )
