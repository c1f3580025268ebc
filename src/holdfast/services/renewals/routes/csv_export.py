"""A run for spreadsheets."""

from __future__ import annotations

import re
from typing import Annotated, Final

from litestar.params import FromPath, QueryParameter
from litestar.response import Stream

from holdfast.routing import TenantId
from holdfast.services.renewals.domain.scoring import TIERS, Tier
from holdfast.services.renewals.queries.csv_export import csv_of
from holdfast.services.renewals.routes.dependencies import Operations, read_route
from holdfast.services.renewals.routes.risk import AsOf, RunId


@read_route("/properties/{property_id:str}/renewal-risk.csv", time_limit_s=120.0, media_type="text/csv")
async def risk_csv(
    operations: Operations,
    tenant_id: TenantId,
    property_id: FromPath[str],
    tier: Annotated[Tier | None, QueryParameter(description="All unless given.")] = None,
    run: RunId = None,
    as_of: AsOf = None,
) -> Stream:
    """A run's scores as CSV, the highest first; text that could begin a formula is quoted.

    Example: `GET …/properties/property-0001/renewal-risk.csv?tier=high`
    """
    portfolio = operations.portfolio(tenant_id)
    chosen = await portfolio.runs.choose(property_id, id=run, as_of=as_of)
    day = "none" if chosen is None else chosen.as_of_date.isoformat()
    file = re.sub(r"[^A-Za-z0-9_.-]", "_", f"renewal-risk-{property_id}-{day}.csv")
    return Stream(
        csv_of(portfolio, property_id, run=chosen, tiers=TIERS if tier is None else (tier,)),
        media_type="text/csv",
        headers={"content-disposition": f'attachment; filename="{file}"'},
    )


ROUTES: Final = (risk_csv,)
