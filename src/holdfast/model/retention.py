"""Retention: when a document may be deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, init=False)
class Retention:
    """A document expires `after_s` after the time in `field`, where `when` holds.

    `field` is a time, or an integer of milliseconds since 1970. `dependents` names the documents, by class
    and id, that are deleted in the same commit.

    Example: `Retention("last_updated_at", after_s=30 * 86_400, when={"status": "expired"})`
    """

    field: str
    after_s: float
    when: Mapping[str, str | int | bool]
    dependents: Callable[[Any], Iterable[tuple[type[Any], str]]] | None

    def __init__(
        self,
        field: str,
        *,
        after_s: float = 0,
        when: Mapping[str, str | int | bool] | None = None,
        dependents: Callable[[Any], Iterable[tuple[type[Any], str]]] | None = None,
    ) -> None:
        object.__setattr__(self, "field", field)
        object.__setattr__(self, "after_s", after_s)
        object.__setattr__(self, "when", dict(when or {}))
        object.__setattr__(self, "dependents", dependents)

    def cutoff(self, now: datetime) -> datetime:
        return now - timedelta(seconds=self.after_s)
