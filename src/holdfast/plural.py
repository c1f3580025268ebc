"""Counts with their nouns, in the singular and the plural."""

from __future__ import annotations


def plural(count: float, noun: str, several: str = "") -> str:
    """A count with its noun; `several` is its plural where that is not made with an s.

    Example: `plural(1, "endpoint")` gives `1 endpoint`, `plural(2_000, "entry", "entries")` `2,000 entries`.
    """
    number = f"{count:,.0f}" if float(count).is_integer() else f"{count:,g}"
    return f"{number} {noun_for(count, noun, several)}"


def noun_for(count: float, noun: str, several: str = "") -> str:
    """The noun alone, where the count stands apart from it."""
    return noun if count == 1 else several or f"{noun}s"
