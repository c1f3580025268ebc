"""Usage: a month's sums, what is taken of each limit, and sums compared with the ledger."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Final, Literal

import msgspec

from holdfast.kit.metering import Allowance, Drift, Meter, UsageSum
from holdfast.kit.metering.meter import limit_state, month_of
from holdfast.operation import Operator, operation
from holdfast.runtime import Runtime
from holdfast.store import Query, Transaction

MONTH_PATTERN: Final = r"^\d{4}-(0[1-9]|1[0-2])$"
_SUMS_MAX: Final = 20_000
_BATCH: Final = 200

LimitState = Literal["ok", "warning", "reached"]
Month = Annotated[str, msgspec.Meta(pattern=MONTH_PATTERN)]


class UsageMonth(msgspec.Struct, frozen=True):
    month: str
    metrics: dict[str, int]


class AllowanceRow(msgspec.Struct, frozen=True):
    """`limit` is the one it was last taken against, None where none is known."""

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


async def sums(runtime: Runtime, tenant_id: str, *, month: str | None = None) -> UsageMonth:
    """A month's exact sums; the current month unless given."""
    chosen = month or month_of(runtime.clock.now())
    return UsageMonth(chosen, await Meter(runtime.store, tenant_id=tenant_id).month_sums(chosen))


async def daily_sums(runtime: Runtime, tenant_id: str, month: str) -> dict[str, dict[str, int]]:
    """Each metric's sum by day; an engine may keep a day in several parts."""
    by_metric: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    query = Query(UsageSum).where("month", "==", month).order_by("metric", "day").limit(500)
    count = 0
    async for stored in runtime.store.tenant(tenant_id).scan(query):
        by_metric[stored.doc.metric][stored.doc.day] += stored.doc.value
        count += 1
        if count >= _SUMS_MAX:
            break
    return by_metric


async def list_allowances(
    runtime: Runtime, tenant_id: str, *, limit: int = 50, cursor: str | None = None
) -> AllowancePage:
    """What is taken of everything limited, by name."""
    page = await Meter(runtime.store, tenant_id=tenant_id).allowances(limit=limit, cursor=cursor)
    return AllowancePage([_row(doc) for doc in page.docs], page.cursor)


@operation("usage.mended", area="usage", verb="rebuild", needs="admin")
async def rebuild(
    runtime: Runtime, by: Operator, *, month: str | None = None, mend: bool = False
) -> UsageRebuild:
    """Add a month's ledger up again and compare it with the sums; with `mend`, set sums right."""
    meter = Meter(runtime.store, tenant_id=by.tenant_id)
    chosen = month or month_of(runtime.clock.now())
    drifts = await meter.rebuild(chosen)

    async def act(tx: Transaction) -> None:
        tx.write(*(meter.write_mend(drift) for drift in batch))

    for start in range(0, len(drifts) if mend else 0, _BATCH):
        batch = drifts[start : start + _BATCH]
        await by.commit(act, subject=chosen, details={"drifts": len(batch)})
    return UsageRebuild(chosen, drifts, mend)


def _row(allowance: Allowance) -> AllowanceRow:
    limit = allowance.limit or None
    state = limit_state(allowance.used, limit) if limit else None
    return AllowanceRow(allowance.name, allowance.used, limit, state)
