"""Routes for usage."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.params import JSONBody, QueryParameter

from holdfast.http.dependencies import RuntimeDependency
from holdfast.operations import usage
from holdfast.operations.usage import AllowancePage, UsageMonth, UsageRebuild
from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId, action_route, read_route
from holdfast.runtime import KIT_PART

_REBUILD_S: Final = 300
_Meter = Annotated[
    str, QueryParameter(description="The meter: the kit's own, or a service's.", max_length=200)
]


class RebuildUsage(RequestBody, frozen=True):
    month: usage.Month | None = None
    mend: bool = False


@read_route("/usage", area="usage", all_tenants=True)
async def sums(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    meter: _Meter = KIT_PART,
    month: Annotated[
        str | None,
        QueryParameter(pattern=usage.MONTH_PATTERN, description="Such as 2026-11. Default: this month."),
    ] = None,
) -> UsageMonth:
    """A month's exact sums, by tenant and over all of them."""
    return await usage.sums(runtime, tenant_id, meter, month=month)


@read_route("/usage/allowances", area="usage", all_tenants=True)
async def list_allowances(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    meter: _Meter = KIT_PART,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> AllowancePage:
    """What is taken of everything limited, by name."""
    return await usage.list_allowances(runtime, tenant_id, meter, limit=limit, cursor=cursor)


@action_route("/usage/rebuild", usage.rebuild, time_limit_s=_REBUILD_S)
async def rebuild(
    runtime: RuntimeDependency, by: By, data: JSONBody[RebuildUsage], meter: _Meter = KIT_PART
) -> UsageRebuild:
    """Compare a month's sums with its ledger; with `mend`, set them right."""
    return await usage.rebuild(runtime, by, meter, month=data.month, mend=data.mend)


ROUTES: Final = (sums, list_allowances, rebuild)
