"""The service's routes, under `/renewals/api/v1`."""

from typing import Final

from holdfast.services.renewals.routes import endpoints, events, exporting, judging, risk, source

ROUTES: Final = (
    *risk.ROUTES, *exporting.ROUTES, *events.ROUTES, *endpoints.ROUTES, *judging.ROUTES, *source.ROUTES
)  # fmt: skip
