"""The service's routes, under `/renewals/api/v1`."""

from typing import Final

from holdfast.services.renewals.routes import endpoints, events, exporting, judging, risk, source, triggers

ROUTES: Final = (
    *risk.ROUTES, *exporting.ROUTES, *triggers.ROUTES, *events.ROUTES, *endpoints.ROUTES, *judging.ROUTES,
    *source.ROUTES,
)  # fmt: skip
