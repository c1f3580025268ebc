"""The Retry-After header."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_s(value: str | None, now: datetime) -> float:
    """Return the seconds that a number or an HTTP date asks for; 0 where it asks for nothing sane.

    Example: `retry_after_s("120", now)` gives `120.0`
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text) if len(text) < 10 else math.inf
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return 0.0
    # An HTTP date is always GMT, also where its writer left the zone away.
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0.0, (at - now).total_seconds())
