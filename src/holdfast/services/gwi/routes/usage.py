"""Usage over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

from litestar.params import JSONBody, QueryParameter
from msgspec import Meta

from holdfast.routing import By, RequestBody, TenantId
from holdfast.services.gwi.operations.usage import (
    MONTH,
    StartCheck,
    UsageAggregate,
    UsageDrift,
    UsageOperations,
    UsageSummary,
)
from holdfast.services.gwi.routes.dependencies import (
    REPEATABLE,
    TENANT,
    TENANT_PATH,
    Operations,
    action_route,
    read_route,
)

Month: TypeAlias = Annotated[str | None, QueryParameter(pattern=MONTH, description="`2026-11`.")]


class RebuildRequest(RequestBody, frozen=True):
    """The month whose sums are compared with the ledger; with `mend` they are set right."""

    month: Annotated[str, Meta(pattern=MONTH)] | None = None
    mend: bool = False


@read_route(f"{TENANT_PATH}/usage", tenant=TENANT)
async def usage(operations: Operations, tenant_id: TenantId, month: Month = None) -> UsageSummary:
    """A month's usage against the limits of the plan."""
    return await operations.usage.summary(tenant_id, month=month or "")


@read_route(f"{TENANT_PATH}/usage/aggregate", tenant=TENANT)
async def usage_aggregate(operations: Operations, tenant_id: TenantId, month: Month = None) -> UsageAggregate:
    """A month's sums by day."""
    return await operations.usage.aggregate(tenant_id, month=month or "")


@read_route(f"{TENANT_PATH}/usage/check", tenant=TENANT)
async def usage_check(operations: Operations, tenant_id: TenantId) -> StartCheck:
    """Whether a run could start now."""
    return await operations.usage.check(tenant_id)


@action_route(f"{TENANT_PATH}/usage/rebuild", UsageOperations.rebuild, tenant=TENANT, idempotent=REPEATABLE)
async def rebuild_usage(operations: Operations, by: By, data: JSONBody[RebuildRequest]) -> UsageDrift:
    """Compare a month's sums with the ledger."""
    return await operations.usage.rebuild(by, month=data.month or "", mend=data.mend)


ROUTES: Final[tuple[Any, ...]] = (usage, usage_aggregate, usage_check, rebuild_usage)
