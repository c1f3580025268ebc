"""How much was used."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from litestar.params import QueryParameter

from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.metering import Allowance, Meter
from holdfast.kit.metering.meter import limit_state, month_of
from holdfast.routing import Cursor, Limit, TenantId, read_route

Standing = Literal["ok", "warning", "reached"]


class UsageMonth(msgspec.Struct, frozen=True):
    month: str
    metrics: dict[str, int]


@read_route("/usage", "viewer", area="usage")
async def usage(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    month: Annotated[
        str | None, QueryParameter(pattern=r"^\d{4}-\d{2}$", description="Default: this.")
    ] = None,
) -> UsageMonth:
    """A month's exact sums."""
    chosen = month or month_of(runtime.clock.now())
    return UsageMonth(chosen, await Meter(runtime.store, tenant_id=tenant_id).month_sums(chosen))


class AllowanceRow(msgspec.Struct, frozen=True):
    """`limit` is the one it was last taken against, None where none is known."""

    name: str
    used: int
    limit: int | None
    standing: Standing | None


class AllowancePage(msgspec.Struct, frozen=True):
    items: list[AllowanceRow]
    cursor: str | None


def row(allowance: Allowance) -> AllowanceRow:
    limit = allowance.limit or None
    judged = limit_state(allowance.used, limit) if limit else None
    return AllowanceRow(allowance.name, allowance.used, limit, judged)


@read_route("/usage/allowances", "viewer", area="usage")
async def allowances(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> AllowancePage:
    """What is taken of everything limited, by name."""
    page = await Meter(runtime.store, tenant_id=tenant_id).allowances(limit=limit, cursor=cursor)
    return AllowancePage([row(doc) for doc in page.docs], page.cursor)


ROUTES: Final = (usage, allowances)
