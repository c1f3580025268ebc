"""How much was used."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar.params import QueryParameter

from holdfast.http.declare import Whole
from holdfast.kit.metering import Meter
from holdfast.kit.metering.meter import month_of
from holdfast.routing import Tenant, TenantId, reads


class UsageMonth(msgspec.Struct, frozen=True):
    month: str
    metrics: dict[str, int]


@reads("/usage", "viewer", area="usage")
async def usage(
    runtime: Whole,
    tenant_id: TenantId,
    month: Annotated[
        str | None, QueryParameter(pattern=r"^\d{4}-\d{2}$", description="Default: this.")
    ] = None,
    tenant: Tenant = None,
) -> UsageMonth:
    """A month's exact sums."""
    chosen = month or month_of(runtime.clock.now())
    return UsageMonth(chosen, await Meter(runtime.store, tenant_id=tenant_id).month_sums(chosen))


ROUTES: Final = (usage,)
