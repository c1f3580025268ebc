"""Usage by each meter: a month's exact sums by day, and what is taken of everything limited."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from markupsafe import Markup

from holdfast.console.plots import Series, bars
from holdfast.console.plots import meter as meter_bar
from holdfast.errors import InvalidError
from holdfast.kit.metering import month_of
from holdfast.kit.metering.period_sums import days_of
from holdfast.operations import usage
from holdfast.operations.usage import AllowanceRow, DailySums
from holdfast.runtime import KIT_PART, Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_TONES: Final = {"ok": "good", "warning": "warn", "reached": "bad"}


def against(allowance: AllowanceRow) -> Markup | None:
    """How much of its limit is taken; None where no limit is known."""
    if allowance.limit is None or allowance.standing is None:
        return None
    said = f"{allowance.used:,} of {allowance.limit:,}"
    return meter_bar(allowance.used / allowance.limit, tone=_TONES[allowance.standing], said=said)


def plots(sums: Iterable[DailySums], days: Sequence[str]) -> list[dict[str, Any]]:
    """Each metric's sum and its days, over all these tenants."""
    total: dict[str, Counter[str]] = {}
    for metric, by_day in [item for by_metric in sums for item in by_metric.items()]:
        total.setdefault(metric, Counter()).update(by_day)
    return [
        {
            "metric": metric, "sum": by_day.total(),
            "plot": bars([Series(metric, "accent", [by_day[day] for day in days])], days,
                         said=f"{metric} by day"),
        }
        for metric, by_day in sorted(total.items())
    ]  # fmt: skip


def pages(runtime: Runtime) -> list[Page]:
    async def month(ask: PageRequest) -> Mapping[str, Any]:
        chosen = ask.text("month") or month_of(runtime.clock.now())
        if not re.fullmatch(usage.MONTH_PATTERN, chosen):
            raise InvalidError("month is written as in 2026-11", "month")
        meter = ask.choice("meter", runtime.meters, default=KIT_PART)
        sums = await usage.daily_sums(runtime, ask.tenant_id, meter, month=chosen)
        taken = await usage.list_allowances(runtime, ask.tenant_id, meter, limit=ROWS, cursor=ask.cursor)
        allowances = [(one, against(one)) for one in taken.items]
        return {
            "rows": plots(sums.values(), days_of(chosen)), "by_tenant": sums, "month": chosen,
            "allowances": allowances, "after": taken.cursor, "meter": meter,
            "meters": list(runtime.meters),
        }  # fmt: skip

    return [Page(path="/usage", title="Usage", template="usage.html", data=month, all_tenants=True)]
