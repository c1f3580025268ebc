"""Columns that have one value in many rows of a statement, which then binds it once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

# From how many rows on values that rows share are bound once.
SHARED_MIN: Final = 16


def is_shared(column: Sequence[Any]) -> bool:
    first = column[0]
    return column[-1] == first and column.count(first) == len(column)


def shared_columns(
    columns: Sequence[Sequence[Any]], candidates: Iterable[int], differing: set[int]
) -> tuple[int, ...]:
    """Return the candidates that have one value in these rows, and had in all rows before.

    `differing` has those that have differed, and learns others: each combination is a statement to prepare.
    """
    left = [n for n in candidates if n not in differing]
    shared = tuple([n for n in left if is_shared(columns[n])])
    if len(shared) < len(left):
        differing.update(set(left).difference(shared))
    return shared
