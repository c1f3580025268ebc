"""A run's scores as CSV, for spreadsheets: streamed, whatever the size of the property."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Sequence
from typing import Final

from holdfast.services.renewals.domain.scoring import SIGNALS, Tier
from holdfast.services.renewals.models import RiskScore, Summary, Unit
from holdfast.services.renewals.queries.portfolio import Portfolio

PAGE: Final = 500
COLUMNS: Final = (
    "resident_id", "name", "unit_number", "risk_score", "risk_tier", "notice_given", "days_to_expiry",
    "as_of_date", "calculated_at", *(f"{name}_points" for name in SIGNALS), "reasons",
)  # fmt: skip
# What a spreadsheet takes for the beginning of a formula.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


async def csv_of(
    portfolio: Portfolio, property_id: str, *, run: Summary | None, tiers: Sequence[Tier]
) -> AsyncIterator[bytes]:
    """The heading, then the scores, the highest first; without a run the heading alone.

    Example: `async for part in csv_of(portfolio, "property-7", run=run, tiers=TIERS): ...`
    """
    yield _lines([COLUMNS])
    cursor: str | None = None
    while run is not None:
        page = await portfolio.risk(run, property_id, tiers=tiers, limit=PAGE, cursor=cursor)
        units = await portfolio.store.get_many(Unit, [one.unit_id for one in page.docs])
        numbers = {unit.doc.id: unit.doc.unit_number for unit in units if unit is not None}
        yield _lines([_row(one, numbers.get(one.unit_id, one.unit_id)) for one in page.docs])
        cursor = page.cursor
        if cursor is None:
            return


def _row(score: RiskScore, unit: str) -> Sequence[object]:
    days = "" if score.days_to_expiry is None else score.days_to_expiry
    points = (score.signals[name].points for name in SIGNALS)
    reasons = " ".join(score.signals[name].sentence for name in SIGNALS)
    return (
        plain(score.resident_id), plain(score.name), plain(unit), score.risk_score, score.risk_tier,
        "yes" if score.notice_given else "no", days, score.as_of_date, score.calculated_at.isoformat(),
        *points, reasons,
    )  # fmt: skip


def plain(text: str) -> str:
    """Text that no spreadsheet runs: what could begin a formula gets an apostrophe before it."""
    return f"'{text}" if text.startswith(_FORMULA) else text


def _lines(rows: Sequence[Sequence[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
