"""The intervals of values that a query's bounds leave of a column."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec

from holdfast.model.sort_key import ordered
from holdfast.store.query import Filter


class Interval(msgspec.Struct, frozen=True):
    """An interval of one column's values, None is unbounded; of its operand's type unless `any_type`."""

    low: Any = None
    low_open: bool = False
    high: Any = None
    high_open: bool = False
    any_type: bool = False


def intervals_of(bounds: list[Filter]) -> tuple[Interval, ...]:
    """Return the intervals that the bounds on one column leave, in ascending order."""
    low: tuple[Any, bool] | None = None
    high: tuple[Any, bool] | None = None
    excluded: dict[bytes, Any] = {}
    for bound in bounds:
        if bound.operator in (">", ">="):
            edge = (bound.value, bound.operator == ">")
            low = edge if low is None or _tighter(edge, low, 1) else low
        elif bound.operator in ("<", "<="):
            edge = (bound.value, bound.operator == "<")
            high = edge if high is None or _tighter(edge, high, -1) else high
        elif bound.operator == "!=":
            excluded[ordered(bound.value)] = bound.value
        else:
            excluded.update((ordered(value), value) for value in bound.value)
    if not bounds:
        return (Interval(),)
    if not excluded:
        return (_interval(low, high),)
    return _around(excluded)


def _tighter(edge: tuple[Any, bool], than: tuple[Any, bool], direction: int) -> bool:
    if edge[0] == than[0]:
        return edge[1] and not than[1]
    return bool(edge[0] > than[0]) == (direction > 0)


def _interval(
    low: tuple[Any, bool] | None, high: tuple[Any, bool] | None, *, any_type: bool = False
) -> Interval:
    low_value, low_open = low or (None, False)
    high_value, high_open = high or (None, False)
    return Interval(low_value, low_open, high_value, high_open, any_type)


def _around(excluded: dict[bytes, Any]) -> tuple[Interval, ...]:
    edges: list[tuple[Any, bool] | None] = [None]
    edges += [(value, True) for _, value in sorted(excluded.items())]
    edges.append(None)
    return tuple(_interval(a, b, any_type=True) for a, b in itertools.pairwise(edges))
