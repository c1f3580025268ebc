"""How much was used: a month's exact sums by day, and what is taken of everything limited."""

from __future__ import annotations

import calendar
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from holdfast.console.plots import Series, bars, meter
from holdfast.errors import InvalidError
from holdfast.http.routes.usage import AllowanceRow, row
from holdfast.kit.metering import Meter, UsageSum
from holdfast.kit.metering.meter import month_of
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest
from holdfast.store import Query, Store

_MONTH: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")
_SUMS_MAX: Final = 20_000
ROWS: Final = 50
_TONES: Final = {"ok": "good", "warning": "warn", "reached": "bad"}


async def _days(store: Store, month: str) -> dict[str, dict[str, int]]:
    """Each metric's sum by day; an engine may keep a day in several parts."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    query = Query(UsageSum).where("month", "==", month).order_by("metric", "day").limit(500)
    seen = 0
    async for one in store.scan(query):
        found[one.doc.metric][one.doc.day] += one.doc.value
        seen += 1
        if seen >= _SUMS_MAX:
            break
    return found


def against(allowance: AllowanceRow) -> Markup | None:
    """How much of its limit is taken; None where no limit is known."""
    if allowance.limit is None or allowance.standing is None:
        return None
    said = f"{allowance.used:,} of {allowance.limit:,}"
    return meter(allowance.used / allowance.limit, tone=_TONES[allowance.standing], said=said)


def pages(runtime: Runtime) -> list[Page]:
    async def month(ask: PageRequest) -> Mapping[str, Any]:
        chosen = ask.text("month") or month_of(runtime.clock.now())
        if not _MONTH.fullmatch(chosen):
            raise InvalidError("month is written as in 2026-11", "month")
        year, number = map(int, chosen.split("-"))
        days = [f"{chosen}-{day:02}" for day in range(1, calendar.monthrange(max(year, 1), number)[1] + 1)]
        sums = await _days(runtime.store.tenant(ask.tenant_id), chosen)
        rows = [
            {
                "metric": metric, "sum": sum(by_day.values()),
                "plot": bars([Series(metric, "accent", [by_day.get(day, 0) for day in days])], days,
                             said=f"{metric} by day"),
            }
            for metric, by_day in sums.items()
        ]  # fmt: skip
        taken = await Meter(runtime.store, tenant_id=ask.tenant_id).allowances(limit=ROWS, cursor=ask.cursor)
        allowances = [(one, against(one)) for one in map(row, taken.docs)]
        return {"rows": rows, "month": chosen, "allowances": allowances, "after": taken.cursor}

    return [Page(path="/usage", title="Usage", template="usage.html", data=month)]
