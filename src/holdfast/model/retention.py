"""Retention: when a document may be deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True, init=False)
class Retention:
    """A document expires `after_s` after the time in `field`, where `when` holds.

    `field` is a time, or an integer of milliseconds since 1970.

    Example: `Retention("last_updated_at", after_s=30 * 86_400, when={"status": "expired"})`
    """

    field: str
    after_s: float
    when: Mapping[str, str | int | bool]

    def __init__(
        self, field: str, *, after_s: float = 0, when: Mapping[str, str | int | bool] | None = None
    ) -> None:
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "after_s", after_s)
        object.__setattr__(self, "when", dict(when or {}))

    def cutoff(self, now: datetime) -> datetime:
        return now - timedelta(seconds=self.after_s)
