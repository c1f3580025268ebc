"""The service's routes, under `/renewals/api/v1`."""

from typing import Final

from holdfast.services.renewals.routes import (
    calibration,
    csv_export,
    deliveries,
    risk,
    source,
    triggers,
    withdrawals,
)

ROUTES: Final = (
    *risk.ROUTES, *csv_export.ROUTES, *triggers.ROUTES, *deliveries.ROUTES, *calibration.ROUTES,
    *source.ROUTES, *withdrawals.ROUTES,
)  # fmt: skip
