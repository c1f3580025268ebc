"""What the service adds to the process."""

from __future__ import annotations

from holdfast.service import AuditPart, Context, MeterPart, Parts, RunPart
from holdfast.services.gwi.models.records import AUDIT, METER
from holdfast.services.gwi.models.runs import RUNS


def build(context: Context) -> Parts:
    """Build the service's parts."""
    return Parts(
        audits=[AuditPart(name="gwi", models=AUDIT)],
        meters=[MeterPart(name="gwi", models=METER)],
        runs=[RunPart(models=RUNS)],
    )
