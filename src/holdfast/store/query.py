"""Queries: filters, order, limit and cursor; and the pages they return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, Literal, TypeVar, get_args

import msgspec

from holdfast.errors import BadQueryError
from holdfast.model.columns import Column
from holdfast.model.document import Document
from holdfast.model.limits import INTEGER_MAX, INTEGER_MIN, PAGE_MAX
from holdfast.store.commit import Snapshot

D = TypeVar("D", bound=Document)
Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not-in", "array-contains"]
_OPERATORS: Final[tuple[str, ...]] = get_args(Operator)


class Filter(msgspec.Struct, frozen=True):
    field: str
    operator: Operator
    value: Any


class Query(msgspec.Struct, Generic[D], frozen=True):
    """A query of one collection. Each method returns a new query.

    Example: `Query(Run).where("status", "==", "running").order_by("-created_at").limit(20)`
    """

    cls: type[D]
    filters: tuple[Filter, ...] = ()
    order: tuple[str, ...] = ()
    size: int = 100
    cursor: str | None = None
    parent: tuple[str, ...] | None = None
    everywhere: bool = False

    def where(self, field: str, operator: Operator, value: Any) -> Query[D]:
        if operator not in _OPERATORS:
            raise BadQueryError(f"operator {operator!r}: use {', '.join(_OPERATORS)}", field)
        return msgspec.structs.replace(self, filters=(*self.filters, Filter(field, operator, value)))

    def order_by(self, *fields: str) -> Query[D]:
        """Fields in order; a leading `-` is descending. The id breaks ties in the last direction."""
        return msgspec.structs.replace(self, order=(*self.order, *fields))

    def limit(self, size: int) -> Query[D]:
        if not 1 <= size <= PAGE_MAX:
            raise BadQueryError(f"a page has 1 to {PAGE_MAX} documents, not {size}")
        return msgspec.structs.replace(self, size=size)

    def after(self, cursor: str | None) -> Query[D]:
        """Continue after the page that returned this cursor."""
        return msgspec.structs.replace(self, cursor=cursor)

    def under(self, *ids: str) -> Query[D]:
        """Only the sub-collection of this parent document."""
        return msgspec.structs.replace(self, parent=ids)

    def across_parents(self) -> Query[D]:
        """All sub-collections of this name, inside the tenant where there is one."""
        return msgspec.structs.replace(self, everywhere=True)


class QueryPage(msgspec.Struct, Generic[D], frozen=True):
    """Some documents, and the cursor that continues after them (None at the end)."""

    items: list[Snapshot[D]]
    cursor: str | None

    @property
    def docs(self) -> list[D]:
        return [item.doc for item in self.items]


def rows_of(found: Iterable[Snapshot[Any]], columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """Return keys and plain values, for engines without columns."""
    return [(item.key, *[column.read(item.doc) for column in columns]) for item in found]


def totals_of(
    found: Iterable[Snapshot[Any]], by: Sequence[Column], of: Column | None
) -> dict[tuple[Any, ...], tuple[int, int | float]]:
    """Return counts and sums grouped by some columns, for the same engines."""
    totals: dict[tuple[Any, ...], tuple[int, int | float]] = {}
    for item in found:
        values = tuple([column.read(item.doc) for column in by])
        count, total = totals.get(values, (0, 0))
        value = None if of is None else of.read(item.doc)
        totals[values] = count + 1, total + (value or 0)
    return totals


def fitting(total: int | float) -> int | float:
    """Return a sum as every engine does: an integer while it fits 64 bits."""
    return total if INTEGER_MIN <= total <= INTEGER_MAX else float(total)
