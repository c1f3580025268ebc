"""Usage by each meter: a month's sums, what is taken of each limit, and sums compared with the ledger."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from holdfast.errors import NotFoundError
from holdfast.kit import ALL_TENANTS
from holdfast.kit.metering import AllowanceFields, Drift, Meter, month_of
from holdfast.kit.metering.meter import limit_state
from holdfast.operation import Operator, operation
from holdfast.operations.tenants import Tenants
from holdfast.runtime import KIT_PART, Runtime
from holdfast.service import MeterPart
from holdfast.store import Query, Transaction

MONTH_PATTERN: Final = r"^\d{4}-(0[1-9]|1[0-2])$"
_BATCH: Final = 200

LimitState = Literal["ok", "warning", "reached"]
Month = Annotated[str, msgspec.Meta(pattern=MONTH_PATTERN)]
# By metric, then by day.
DailySums: TypeAlias = Mapping[str, Mapping[str, int]]


class UsageRow(msgspec.Struct, frozen=True, rename="camel"):
    tenant_id: str
    metric: str
    used: int


class UsageMonth(msgspec.Struct, frozen=True):
    """A month's sums: each tenant's in `items`, and over these tenants in `metrics`."""

    month: str
    metrics: dict[str, int]
    items: list[UsageRow]


class AllowanceRow(msgspec.Struct, frozen=True, rename="camel"):
    """`limit` is the one it was last taken against, None where none is known."""

    tenant_id: str
    name: str
    used: int
    limit: int | None
    standing: LimitState | None


class AllowancePage(msgspec.Struct, frozen=True):
    items: list[AllowanceRow]
    cursor: str | None


class UsageRebuild(msgspec.Struct, frozen=True):
    """The sums that did not agree with the ledger."""

    month: str
    drifts: list[Drift]
    mended: bool


def meter_named(runtime: Runtime, tenant_id: str, meter: str) -> Meter:
    """Return a tenant's meter or raise NotFoundError, naming those there are."""
    return runtime.meter(tenant_id, models=_part(runtime, meter).models)


def _part(runtime: Runtime, meter: str) -> MeterPart:
    if meter not in runtime.meters:
        raise NotFoundError(f"no meter {meter!r}; there are {', '.join(runtime.meters)}")
    return runtime.meters[meter]


async def sums(
    runtime: Runtime, tenant_id: str, meter: str = KIT_PART, *, month: str | None = None
) -> UsageMonth:
    """A month's exact sums, of one tenant or of all known ones; the current month unless given."""
    chosen = month or month_of(runtime.clock.now())
    items = [
        UsageRow(one, metric, sum(by_day.values()))
        for one, metrics in (await daily_sums(runtime, tenant_id, meter, month=chosen)).items()
        for metric, by_day in sorted(metrics.items())
    ]
    total = Counter[str]()
    for row in items:
        total[row.metric] += row.used
    return UsageMonth(chosen, dict(total), items)


async def daily_sums(
    runtime: Runtime, tenant_id: str, meter: str = KIT_PART, *, month: str
) -> dict[str, DailySums]:
    """A month's exact sums by tenant, metric and day, of the tenants that used something."""
    known = await Tenants(runtime).known() if tenant_id == ALL_TENANTS else [tenant_id]
    found = {one: await meter_named(runtime, one, meter).daily_sums(month) for one in known}
    return {one: by_metric for one, by_metric in found.items() if by_metric}


async def list_allowances(
    runtime: Runtime, tenant_id: str, meter: str = KIT_PART, *, limit: int = 50, cursor: str | None = None
) -> AllowancePage:
    """What is taken of everything limited, by name; over all tenants by theirs first."""
    if tenant_id == ALL_TENANTS:
        query = Query(_part(runtime, meter).models.allowance).limit(limit).after(cursor)
        page = await runtime.store_of(tenant_id).query(query)
    else:
        page = await meter_named(runtime, tenant_id, meter).allowances(limit=limit, cursor=cursor)
    return AllowancePage([_row(doc) for doc in page.docs], page.cursor)


@operation("usage.mended", area="usage", verb="rebuild", needs="admin")
async def rebuild(
    runtime: Runtime, by: Operator, meter: str = KIT_PART, *, month: str | None = None, mend: bool = False
) -> UsageRebuild:
    """Add a month's ledger up again and compare it with the sums; with `mend`, set sums right."""
    chosen, usage = month or month_of(runtime.clock.now()), meter_named(runtime, by.tenant_id, meter)
    drifts = await usage.rebuild(chosen)

    async def act(tx: Transaction) -> None:
        for drift in batch:
            await usage.mend(tx, drift)

    for start in range(0, len(drifts) if mend else 0, _BATCH):
        batch = drifts[start : start + _BATCH]
        await by.commit(act, subject=chosen, details={"meter": meter, "drifts": len(batch)})
    return UsageRebuild(chosen, drifts, mend)


def _row(allowance: AllowanceFields) -> AllowanceRow:
    limit = allowance.limit or None
    state = limit_state(allowance.used, limit) if limit else None
    return AllowanceRow(allowance.tenant_id, allowance.name, allowance.used, limit, state)
