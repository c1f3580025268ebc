"""The five timespans with their length and time to live, and the limits of lists and pages."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

SpanName = Literal["Day", "Week", "Month", "Year", "All"]
HOUR_S: Final = 3_600
DAY_S: Final = 86_400
KEPT_MAX: Final = 2_000  # stories kept for a span: enough for a full page after many hidden ones
PAGE_MAX: Final = 500
WORKER_BATCH_MAX: Final = 200


class Span(msgspec.Struct, frozen=True):
    """A timespan; `length_s` is None for all time, `ttl_s` is how long its cached stories are fresh."""

    name: SpanName
    length_s: int | None
    ttl_s: int

    def cutoff_ms(self, now_ms: int) -> int:
        """The time that a story of this span must be later than, in epoch milliseconds."""
        return now_ms - self.length_s * 1_000 if self.length_s is not None else -1


DAY: Final = Span("Day", DAY_S, HOUR_S // 2)
ALL: Final = Span("All", None, 30 * DAY_S)
SPANS: Final[dict[str, Span]] = {
    span.name: span
    for span in (
        DAY,
        Span("Week", 7 * DAY_S, 2 * DAY_S),
        Span("Month", 28 * DAY_S, 7 * DAY_S),
        Span("Year", 365 * DAY_S, 30 * DAY_S),
        ALL,
    )
}


class RefreshTier(msgspec.Struct, frozen=True):
    """Stories younger than the span are fetched again when not updated for `stale_s`."""

    span: Span
    stale_s: int


TIERS: Final = (
    RefreshTier(SPANS["Day"], HOUR_S),
    RefreshTier(SPANS["Week"], 6 * HOUR_S),
    RefreshTier(SPANS["Month"], 48 * HOUR_S),
)


def span_of(text: str) -> Span:
    """Return the span of this name; anything else is All.

    Example: `span_of("Week").length_s` gives `604800`
    """
    return SPANS.get(text, ALL)
