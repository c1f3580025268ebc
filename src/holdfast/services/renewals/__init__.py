"""Renewals: who will not renew, why, and an event to the RMS that always arrives.

source ──► given tables ──► calculation run ──► scores with reasons ──► page, API
                                                │ a click, or the property's rules
                                                ▼
                               delivery state (outbox) ──► RMS, signed, retried, dead letters

routes, commands, views     parse, call an operation or a query, render
operations                  acts, each with its audit event in the same commit
jobs, ingest                calculations and triggers under a claim; imports and refreshes of the tables
queries                     reads of one portfolio
models                      documents
domain                      pure decisions: scores, calibration, rules, dates, money
"""

from __future__ import annotations

from functools import partial

from holdfast.service import Context, Parts, RunPart, Service
from holdfast.services.renewals.ingest.settings import RenewalsSettings
from holdfast.services.renewals.models import (
    DOCUMENTS,
    JOBS,
    TRIGGER_JOBS,
    CalculationJob,
    RmsEndpoint,
    TriggerJob,
)


def build(context: Context) -> Parts:
    # Imported here, because the scoring subprocess needs none of it and starts in half the time.
    from holdfast.services.renewals.jobs.rms_outbox import rms_outbox
    from holdfast.services.renewals.metrics import RenewalsMetrics
    from holdfast.services.renewals.operations import Renewals
    from holdfast.services.renewals.routes import ROUTES
    from holdfast.services.renewals.views import attention, pages

    outbox = rms_outbox(context.dispatcher)
    renewals = Renewals(
        context.store, context.settings, subprocess_pool=context.subprocess_pool, dispatcher=outbox.dispatcher
    )
    refresh = renewals.refresh
    calculations, triggers = renewals.workflow, renewals.trigger_workflow
    return Parts(
        routes=ROUTES,
        jobs=[refresh.job()] if refresh.in_use else [],
        loops={"source": refresh} if refresh.in_use else {},
        outboxes=[outbox],
        runs=[
            RunPart(models=JOBS, workflows=[calculations]),
            RunPart(models=TRIGGER_JOBS, workflows=[triggers]),
        ],
        queues={"calculations": CalculationJob, "triggers": TriggerJob},
        pages=pages(renewals),
        health=refresh.health,
        attention=partial(attention, renewals),
        checks=[refresh.check],
        metrics=RenewalsMetrics(
            outbox.dispatcher,
            context.runner,
            calculations=calculations,
            triggers=triggers,
            refreshing=refresh,
        ),
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
