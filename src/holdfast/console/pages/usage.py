"""Usage: a month's exact sums by day, and what is taken of everything limited."""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from typing import Any, Final

from markupsafe import Markup

from holdfast.console.plots import Series, bars, meter
from holdfast.errors import InvalidError
from holdfast.kit.metering.meter import month_of
from holdfast.operations import usage
from holdfast.operations.usage import AllowanceRow
from holdfast.runtime import Runtime
from holdfast.service import Page, PageRequest

ROWS: Final = 50
_TONES: Final = {"ok": "good", "warning": "warn", "reached": "bad"}


def against(allowance: AllowanceRow) -> Markup | None:
    """How much of its limit is taken; None where no limit is known."""
    if allowance.limit is None or allowance.standing is None:
        return None
    said = f"{allowance.used:,} of {allowance.limit:,}"
    return meter(allowance.used / allowance.limit, tone=_TONES[allowance.standing], said=said)


def pages(runtime: Runtime) -> list[Page]:
    async def month(ask: PageRequest) -> Mapping[str, Any]:
        chosen = ask.text("month") or month_of(runtime.clock.now())
        if not re.fullmatch(usage.MONTH_PATTERN, chosen):
            raise InvalidError("month is written as in 2026-11", "month")
        year, number = map(int, chosen.split("-"))
        days = [f"{chosen}-{day:02}" for day in range(1, calendar.monthrange(max(year, 1), number)[1] + 1)]
        sums = await usage.daily_sums(runtime, ask.tenant_id, chosen)
        rows = [
            {
                "metric": metric, "sum": sum(by_day.values()),
                "plot": bars([Series(metric, "accent", [by_day.get(day, 0) for day in days])], days,
                             said=f"{metric} by day"),
            }
            for metric, by_day in sums.items()
        ]  # fmt: skip
        taken = await usage.list_allowances(runtime, ask.tenant_id, limit=ROWS, cursor=ask.cursor)
        allowances = [(one, against(one)) for one in taken.items]
        return {"rows": rows, "month": chosen, "allowances": allowances, "after": taken.cursor}

    return [Page(path="/usage", title="Usage", template="usage.html", data=month)]
