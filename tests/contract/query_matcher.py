"""What a query finds and in which order, as plainly as possible."""

from __future__ import annotations

import operator
from datetime import datetime
from typing import Any, Protocol

from msgspec import UNSET

from holdfast.model import Document
from holdfast.model.columns import Column
from holdfast.store import Snapshot
from holdfast.store.plan import QueryPlan
from holdfast.store.query import Filter


class MatchedRow(Protocol):
    """A row to be matched."""

    tenant: str | None
    stored: Document


def column_of(plan: QueryPlan, path: str) -> Column:
    columns = [t.column for t in plan.order] + [c for c, _ in plan.equals]
    return next(column for column in columns if column.path == path)


def matches(plan: QueryPlan, key: str, row: MatchedRow) -> bool:
    if plan.tenant is not None and row.tenant != plan.tenant:
        return False
    if plan.parent is not None and key.rpartition("\x01")[0] != plan.parent:
        return False
    if any(term.column.read(row.stored) is UNSET for term in plan.order):
        return False
    held = [(column.read(row.stored), values) for column, values in plan.equals]
    if not all(any(_same(value, one) for one in values) for value, values in held):
        return False
    if plan.member and not any(_same(one, plan.member[1]) for one in plan.member[0].read(row.stored) or ()):
        return False
    return all(_satisfies(column_of(plan, bound.field).read(row.stored), bound) for bound in plan.bounds)


def _satisfies(value: Any, bound: Filter) -> bool:
    if value is None:
        return False
    if bound.operator == "not-in":
        return not any(_same(value, one) for one in bound.value)
    if bound.operator == "!=":
        return not _same(value, bound.value)
    return _within(value, bound)


def _within(value: Any, bound: Filter) -> bool:
    if rank(value) != rank(bound.value):
        return False
    ours, theirs = _weight(value), _weight(bound.value)
    compare = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
    return bool(compare[bound.operator](ours, theirs))


def rank(value: Any) -> int:
    """Return the order of a value's type among the others."""
    if value is None:
        return 0
    kinds: list[tuple[type, ...]] = [(bool,), (int, float), (datetime,), (str,), (bytes,)]
    return next(n for n, kind in enumerate(kinds, 1) if isinstance(value, kind))


def _weight(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def _same(one: Any, other: Any) -> bool:
    if one is UNSET:
        return False
    return rank(one) == rank(other) and bool(one == other)


class Position:
    """The position of a document in a query's order."""

    def __init__(self, plan: QueryPlan, values: tuple[Any, ...], key: str) -> None:
        self._descending = [*(t.descending for t in plan.order), plan.key_descending]
        self._parts = [*((rank(v), _weight(v)) for v in values), (0, key.encode())]

    def __lt__(self, other: Position) -> bool:
        for descending, mine, theirs in zip(self._descending, self._parts, other._parts, strict=True):
            if mine != theirs:
                return _lower(mine, theirs) != descending
        return False


def _lower(mine: tuple[int, Any], theirs: tuple[int, Any]) -> bool:
    return mine[0] < theirs[0] if mine[0] != theirs[0] else bool(mine[1] < theirs[1])


def position(plan: QueryPlan, snapshot: Snapshot[Any]) -> Position:
    return Position(plan, tuple(t.column.read(snapshot.doc) for t in plan.order), snapshot.key)
