"""Renewals: who will not renew, why, and an event that always arrives.

    source ──► given tables ──► calculation run ──► scores with reasons ──► page, API
                                                    │ a click, or by itself
                                                    ▼
                                   delivery state (outbox) ──► RMS, signed, retried, dead letters

A source is a folder of CSV files or an existing PostgreSQL schema (`sources`); `importing` takes it in,
`refreshing` keeps up with it. `scoring` decides, `reading` reads in sets, `calculating` runs, `triggering`
puts events out, of a great many by `trigger_jobs`; `portfolio` is what routes, commands and pages stand on.
"""

from __future__ import annotations

from holdfast.service import Context, OutboxPart, Parts, RunPart, Service
from holdfast.services.renewals.ingest.settings import RenewalsSettings
from holdfast.services.renewals.models import (
    DOCUMENTS,
    EVENT_TYPE,
    JOBS,
    OUTBOX_MODELS,
    TRIGGER_JOBS,
    CalculationJob,
    RmsEndpoint,
    TriggerJob,
)


def build(context: Context) -> Parts:
    # Only who serves or works needs these; the process that scores beside it starts in half the time.
    from holdfast.services.renewals.endpoints import require_property
    from holdfast.services.renewals.operations import Renewals
    from holdfast.services.renewals.routes import ROUTES
    from holdfast.services.renewals.views import pages

    renewals = Renewals(context)
    refreshing = renewals.refreshing
    return Parts(
        routes=ROUTES,
        jobs=[refreshing.job()] if refreshing.in_use else [],
        loops={
            "calculations": renewals.runner,
            "triggers": renewals.trigger_runner,
            **({"source": refreshing} if refreshing.in_use else {}),
        },
        outboxes=[
            OutboxPart(
                name="renewals",
                models=OUTBOX_MODELS,
                dispatcher=renewals.dispatcher,
                event_types=[EVENT_TYPE],
                endpoint_of="property",
                endpoint_page="/console/renewals/properties/{id}",
                check_endpoint=require_property,
                test_fields={"resident_id": ""},
            )
        ],
        runs=[RunPart(models=JOBS), RunPart(models=TRIGGER_JOBS)],
        queues={"calculations": CalculationJob, "triggers": TriggerJob},
        pages=pages(renewals),
        health=renewals.health,
        attention=renewals.attention,
        checks=[refreshing.check],
        metrics=renewals.metrics,
        operations=renewals,
    )


service = Service(
    name="renewals",
    summary="Who will not renew their lease, why, and events to the revenue-management system.",
    documents=DOCUMENTS,
    settings=RenewalsSettings,
    build=build,
    sealed={RmsEndpoint: ("secrets.sealed",)},
)
