"""The choice of an index: by the fields and operators of a query alone, whatever values it compares with.

An index serves a query when its fields are the equality fields followed by the order, and nothing else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from holdfast.errors import BadQueryError, UnindexedQueryError
from holdfast.model.columns import Column, make_column
from holdfast.model.index import Across, Index, ResolvedIndex
from holdfast.model.schema import Schema
from holdfast.store.query import Operator

RANGES: Final = ("<", "<=", ">", ">=")
_EQUALITIES: Final = ("==", "in", "array-contains")
_SHAPES_MAX: Final = 4_096
FieldFilters = tuple[tuple[str, Operator], ...]


class OrderTerm(msgspec.Struct, frozen=True):
    column: Column
    descending: bool


class QueryShape(msgspec.Struct, frozen=True, eq=False):
    """What queries that differ in their values only have in common; one object for all of them."""

    order: tuple[OrderTerm, ...]
    index: ResolvedIndex | None  # None: by id alone
    columns: tuple[Column, ...] = ()  # of the filters, in their order
    plain: bool = False  # every filter is ==, on a column of one type, and an index serves


known_shapes: Final[
    dict[tuple[Schema[Any], FieldFilters, tuple[str, ...], Across, str | None], QueryShape]
] = {}


def choose_shape(
    schema: Schema[Any], filters: FieldFilters, order: tuple[str, ...], *, summed: str | None, across: Across
) -> QueryShape:
    """Find a query's shape and keep it: programs repeat their queries with other values."""
    shape = _shape(schema, filters, order, summed=summed, across=across)
    if len(known_shapes) >= _SHAPES_MAX:
        known_shapes.clear()
    known_shapes[schema, filters, order, across, summed] = shape
    return shape


def _shape(
    schema: Schema[Any], filters: FieldFilters, order: tuple[str, ...], *, summed: str | None, across: Across
) -> QueryShape:
    """Find the index by the fields and operators alone."""
    equals = frozenset([field for field, operator in filters if operator in ("==", "in")])
    member = next((field for field, operator in filters if operator == "array-contains"), None)
    bounds = frozenset([field for field, operator in filters if operator not in _EQUALITIES])
    terms = _order(schema, order, bounds=bounds, fixed=equals)
    if summed is not None:
        terms = _with_summed(schema, terms, summed, equals)
    index = _choose(schema, _IndexShape(equals, member, terms, across, bounds))
    columns = filter_columns(schema, filters)
    only_equal = all(operator == "==" for _, operator in filters)
    plain = only_equal and index is not None and all(column.kind != "open" for column in columns)
    return QueryShape(terms, index, columns, plain)


class _IndexShape(msgspec.Struct, frozen=True):
    equals: frozenset[str]
    member: str | None
    order: tuple[OrderTerm, ...]
    across: Across
    bounded: frozenset[str]  # by filters that no null passes

    def declaration(self) -> Index:
        head = sorted(self.equals)
        head += [f"{self.member}[]"] if self.member else []
        return Index(
            *head, *(("-" if t.descending else "") + t.column.path for t in self.order), across=self.across
        )


@lru_cache(maxsize=4_096)
def filter_columns(schema: Schema[Any], filters: FieldFilters) -> tuple[Column, ...]:
    """Return the columns of filters; refuses operators that a field does not take, or not together."""
    operators: dict[str, list[Operator]] = {}
    columns: list[Column] = []
    for field, operator in filters:
        column = column_of(schema, field)
        if column.kind == "list" and operator != "array-contains":
            raise BadQueryError("a list takes array-contains only", field)
        if column.kind != "list" and operator == "array-contains":
            raise BadQueryError(f"{field} is not a list", field)
        columns.append(column)
        operators.setdefault(field, []).append(operator)
    if len([operator for _, operator in filters if operator == "array-contains"]) > 1:
        raise BadQueryError("a query takes array-contains once", filters[-1][0])
    for field, own in operators.items():
        equalities = [operator for operator in own if operator in _EQUALITIES]
        ranges = [operator for operator in own if operator in RANGES]
        if len(equalities) > 1:
            raise BadQueryError("a field takes one equality only", field)
        if equalities and len(own) > 1:
            raise BadQueryError("a field takes either == or a range, not both", field)
        if ranges and len(ranges) < len(own):
            raise BadQueryError("a field takes either != / not-in or a range", field)
    return tuple(columns)


def column_of(schema: Schema[Any], path: str) -> Column:
    return schema.column(path) or make_column(path, schema.fields, schema.name)


def _order(
    schema: Schema[Any], words: tuple[str, ...], *, bounds: frozenset[str], fixed: frozenset[str]
) -> tuple[OrderTerm, ...]:
    terms: dict[str, OrderTerm] = {}
    for word in words:
        path = word.lstrip("-")
        column = column_of(schema, path)
        if path in fixed:
            raise BadQueryError("the order names a field that == fixes", path)
        if column.kind == "list" or path in terms:
            raise BadQueryError(
                "a list has no order" if column.kind == "list" else "the order names a field twice", path
            )
        terms[path] = OrderTerm(column, word.startswith("-"))
    last = bool(terms) and next(reversed(terms.values())).descending
    for path in sorted(bounds):
        terms.setdefault(path, OrderTerm(column_of(schema, path), last))
    return tuple(terms.values())


def _with_summed(
    schema: Schema[Any], order: tuple[OrderTerm, ...], field: str, fixed: frozenset[str]
) -> tuple[OrderTerm, ...]:
    column = column_of(schema, field)
    if column.kind not in ("integer", "number"):
        raise BadQueryError(f"{field} is not a number, so it can't be summed", field)
    if field in fixed or any(term.column.path == field for term in order):
        return order
    return (*order, OrderTerm(column, False))


def _choose(schema: Schema[Any], wanted: _IndexShape) -> ResolvedIndex | None:
    if not wanted.equals and not wanted.member and not wanted.order and _by_id_alone(schema, wanted.across):
        return None
    for index in schema.indexes:
        if _serves(index, wanted, schema):
            return index
    add = wanted.declaration()
    raise UnindexedQueryError(
        f"no index of {schema.name} serves this query; add to its @document(indexes=[...]): {add}"
    )


def _by_id_alone(schema: Schema[Any], across: Across) -> bool:
    """Whether the order of ids serves: it does unless one tenant's must be found among others'."""
    return schema.tenant is None or across == "tenants" or schema.tenant_is_parent or (
        schema.path.nested and across == "nothing")  # fmt: skip


def _serves(index: ResolvedIndex, wanted: _IndexShape, schema: Schema[Any]) -> bool:
    if index.across != wanted.across and not _same_width(schema, index.across, wanted.across):
        return False
    if index.sparse is not None and not _excludes_empty(index.sparse, wanted):
        return False
    head = len(wanted.equals) + (1 if wanted.member else 0)
    front, rest = index.fields[:head], index.fields[head:]
    if {f.column.path for f in front if not f.member} != wanted.equals or len(front) != head:
        return False
    members = [f.column.path for f in front if f.member]
    if members != ([wanted.member] if wanted.member else []):
        return False
    if [f.column.path for f in rest] != [t.column.path for t in wanted.order] or any(f.member for f in rest):
        return False
    reversed_terms = {f.descending != t.descending for f, t in zip(rest, wanted.order, strict=True)}
    return len(reversed_terms) <= 1


def _excludes_empty(column: Column, wanted: _IndexShape) -> bool:
    """Whether the filters can exclude what a sparse index leaves out; with == that depends on the value."""
    return column.path in wanted.equals or (column.path in wanted.bounded and column.kind != "text")


def _same_width(schema: Schema[Any], declared: Across, asked: Across) -> bool:
    if schema.tenant is None:
        declared = "parents" if declared == "tenants" else declared
        asked = "parents" if asked == "tenants" else asked
    if not schema.path.nested:
        declared = "nothing" if declared == "parents" else declared
        asked = "nothing" if asked == "parents" else asked
    return declared == asked
