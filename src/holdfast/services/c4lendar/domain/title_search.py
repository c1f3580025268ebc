"""Search of events by words of their title: exact, then substring, then with typing errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from rapidfuzz import fuzz

SIMILARITY_MIN = 75.0


class Titled(Protocol):
    """Anything with a title."""

    @property
    def title(self) -> str: ...


T = TypeVar("T", bound=Titled)


def find_by_title(words: str, events: Sequence[T]) -> list[T]:
    """Return the events of the best kind of match in the given order; of several the person must choose."""
    wanted = _normalized(words)
    if not wanted:
        return []
    for matches in (
        [event for event in events if _normalized(event.title) == wanted],
        [event for event in events if wanted in _normalized(event.title)],
    ):
        if matches:
            return matches
    return [event for event in events if _similarity(wanted, _normalized(event.title)) >= SIMILARITY_MIN]


def _similarity(wanted: str, title: str) -> float:
    # A short title inside long words would match anything by parts, so lengths must be comparable.
    whole = fuzz.ratio(wanted, title)
    return whole if len(title) < len(wanted) else max(whole, fuzz.partial_ratio(wanted, title))


def _normalized(text: str) -> str:
    return " ".join(text.casefold().split())
