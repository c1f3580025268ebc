"""Renewals: who will not renew, why, and an event that always arrives.

    CSV ──► given tables ──► calculation run ──► scores with reasons ──► page, API
                                                    │ a click, or by itself
                                                    ▼
                                   delivery state (outbox) ──► RMS, signed, retried, dead letters

`scoring` decides, `reading` reads in sets, `calculating` runs, `triggering` puts events out; `portfolio` is
what routes, commands and pages stand on.
"""

from __future__ import annotations

from holdfast.service import Context, Parts, Service
from holdfast.services.renewals.commands import commands
from holdfast.services.renewals.keeper import Renewals
from holdfast.services.renewals.models import DOCUMENTS, CalculationJob, DeliveryState, RmsEndpoint
from holdfast.services.renewals.routes import ROUTES
from holdfast.services.renewals.views import pages


def build(context: Context) -> Parts:
    renewals = Renewals(context)
    return Parts(
        routes=ROUTES,
        loops={"deliveries": renewals.dispatcher, "calculations": renewals.runner},
        queues={"deliveries": DeliveryState, "calculations": CalculationJob},
        pages=pages(renewals),
        health=renewals.health,
        attention=renewals.attention,
        figures=renewals.figures,
        inside=renewals,
    )


service = Service(
    name="renewals",
    summary="Who will not renew their lease, why, and events to the revenue-management system.",
    documents=DOCUMENTS,
    build=build,
    sealed={RmsEndpoint: ("secrets.sealed",)},
    commands=commands,
)
