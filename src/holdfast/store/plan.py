"""Query planning: finds the declared index that serves a query, the same for every engine, or refuses it.

An index serves a query when its fields are the equality fields followed by the order, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import (
    BadCursorError,
    BadIdError,
    BadQueryError,
    UnindexedQueryError,
    WrongTenantError,
    WrongTypeError,
)
from holdfast.model.columns import Column, make_column
from holdfast.model.document import schema_of
from holdfast.model.index import Across, Index, ResolvedIndex
from holdfast.model.limits import ALTERNATIVES_MAX
from holdfast.model.path import JOINT, join_key, split_key
from holdfast.model.schema import Schema
from holdfast.model.sort_key import ordered
from holdfast.store.cursors import decode_cursor, encode_cursor, fingerprint
from holdfast.store.query import Filter, Operator, Query

_EQUALITIES: Final = ("==", "in", "array-contains")
_RANGES: Final = ("<", "<=", ">", ">=")
_FIELD_AND_OPERATOR: Final = attrgetter("field", "operator")
_SHAPES_MAX: Final = 4_096
_FieldFilters = tuple[tuple[str, Operator], ...]
_Equals = tuple[tuple[Column, tuple[Any, ...]], ...]


class Aggregate(msgspec.Struct, frozen=True):
    function: Literal["count", "sum", "avg"]
    field: str | None = None


class OrderTerm(msgspec.Struct, frozen=True):
    column: Column
    descending: bool


class QueryShape(msgspec.Struct, frozen=True, eq=False):
    """What queries that differ in their values only have in common; one object for all of them."""

    order: tuple[OrderTerm, ...]
    index: ResolvedIndex | None  # None: by id alone
    columns: tuple[Column, ...] = ()  # of the filters, in their order
    plain: bool = False  # every filter is ==, on a column of one type, and an index serves


_shapes: Final[dict[tuple[Schema[Any], _FieldFilters, tuple[str, ...], Across, str | None], QueryShape]] = {}


class QueryPlan(msgspec.Struct, frozen=True):
    """A query with the index that an engine scans for it."""

    schema: Schema[Any]
    shape: QueryShape
    tenant: str | None  # None: not filtered (untenanted, or a privileged handle)
    parent: str | None  # None: not filtered (top level, or across parents)
    parent_ids: tuple[str, ...]
    equals: tuple[tuple[Column, tuple[Any, ...]], ...]  # alternatives; more than one is `in`
    member: tuple[Column, Any] | None
    bounds: tuple[Filter, ...]  # ranges, != and not-in, all on order terms; see intervals_of
    limit: int
    after: tuple[tuple[Any, ...], str] | None
    identity: tuple[Query[Any], str | None]  # the query and its handle's tenant, which tie a cursor to it
    aggregate: Aggregate | None = None

    @property
    def index(self) -> ResolvedIndex | None:
        return self.shape.index

    @property
    def order(self) -> tuple[OrderTerm, ...]:
        return self.shape.order

    @property
    def key_descending(self) -> bool:
        return bool(self.order) and self.order[-1].descending

    def cursor_at(self, document: Any, key: str) -> str:
        position = ([term.column.read(document) for term in self.shape.order], key)
        return encode_cursor(_query_fingerprint(*self.identity), position)


def resolve(
    query: Query[Any], *, tenant: str | None, privileged: bool, aggregate: Aggregate | None = None
) -> QueryPlan:
    """Find the declared index that serves the query, or refuse it with the one to declare."""
    schema = schema_of(query.cls)
    if schema.tenant is not None and tenant is None and not privileged:
        raise WrongTenantError(
            f"{schema.name} belongs to tenants; use store.tenant(...) or store.privileged()"
        )
    parent_ids, across = _scope(schema, query, tenant=tenant if schema.tenant else None)
    filters = tuple(map(_FIELD_AND_OPERATOR, query.filters))
    summed = None if aggregate is None else aggregate.field
    shape = _shapes.get((schema, filters, query.order, across, summed))
    equals: _Equals
    member: tuple[Column, Any] | None = None
    bounds: tuple[Filter, ...] = ()
    if shape is not None and shape.plain:
        operands = zip(shape.columns, query.filters, strict=True)
        equals = tuple([(column, (column.operand(one.value),)) for column, one in operands])
    else:
        equals, member, bounds = _operands(query, _filter_columns(schema, filters))
        shape = shape or _remember_shape(schema, filters, query.order, summed=summed, across=across)
    if shape.index is not None and shape.index.sparse is not None:
        _check_sparse(shape.index, equals)
    return QueryPlan(
        schema=schema, shape=shape, tenant=tenant if schema.tenant else None,
        parent=JOINT.join(parent_ids) if parent_ids else None, parent_ids=parent_ids, equals=equals,
        member=member, bounds=bounds, limit=query.size,
        after=None if query.cursor is None else _after(query, query.cursor, order=shape.order, tenant=tenant),
        identity=(query, tenant), aggregate=aggregate,
    )  # fmt: skip


def _remember_shape(
    schema: Schema[Any], filters: _FieldFilters, order: tuple[str, ...], *, summed: str | None, across: Across
) -> QueryShape:
    """Find a query's shape and keep it: programs repeat their queries with other values."""
    shape = _shape(schema, filters, order, summed=summed, across=across)
    if len(_shapes) >= _SHAPES_MAX:
        _shapes.clear()
    _shapes[schema, filters, order, across, summed] = shape
    return shape


def _shape(
    schema: Schema[Any], filters: _FieldFilters, order: tuple[str, ...], *, summed: str | None, across: Across
) -> QueryShape:
    """Find the index by the fields and operators alone."""
    equals = frozenset([field for field, operator in filters if operator in ("==", "in")])
    member = next((field for field, operator in filters if operator == "array-contains"), None)
    bounds = frozenset([field for field, operator in filters if operator not in _EQUALITIES])
    terms = _order(schema, order, bounds=bounds, fixed=equals)
    if summed is not None:
        terms = _with_summed(schema, terms, summed, equals)
    index = _choose(schema, _IndexShape(equals, member, terms, across, bounds))
    columns = _filter_columns(schema, filters)
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


def _scope(schema: Schema[Any], query: Query[Any], *, tenant: str | None) -> tuple[tuple[str, ...], Across]:
    """Return the parent to query under, or the width of the query across parents and tenants."""
    crossing = schema.tenant is not None and tenant is None
    if not schema.path.nested:
        return (), "tenants" if crossing else "nothing"
    if query.parent is not None:
        join_key(query.parent, schema.path.parameters[:-1])
        if schema.tenant_is_parent and tenant is not None and query.parent != (tenant,):
            raise WrongTenantError(f"{schema.name}: this handle can't read another tenant's documents")
        return query.parent, "nothing"
    if schema.tenant_is_parent and tenant is not None:
        return (tenant,), "nothing"
    if not query.everywhere:
        raise BadQueryError(f"{schema.name} is a sub-collection: say .under(parent id) or .across_parents()")
    return (), "tenants" if crossing else "parents"


@lru_cache(maxsize=4_096)
def _filter_columns(schema: Schema[Any], filters: _FieldFilters) -> tuple[Column, ...]:
    """Return the columns of filters; refuses operators that a field does not take, or not together."""
    operators: dict[str, list[Operator]] = {}
    columns: list[Column] = []
    for field, operator in filters:
        column = _column(schema, field)
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
        ranges = [operator for operator in own if operator in _RANGES]
        if len(equalities) > 1:
            raise BadQueryError("a field takes one equality only", field)
        if equalities and len(own) > 1:
            raise BadQueryError("a field takes either == or a range, not both", field)
        if ranges and len(ranges) < len(own):
            raise BadQueryError("a field takes either != / not-in or a range", field)
    return tuple(columns)


def _operands(
    query: Query[Any], columns: tuple[Column, ...]
) -> tuple[tuple[tuple[Column, tuple[Any, ...]], ...], tuple[Column, Any] | None, tuple[Filter, ...]]:
    """Return what the filters compare with: equalities, a list's member, bounds."""
    equals: list[tuple[Column, tuple[Any, ...]]] = []
    member: tuple[Column, Any] | None = None
    bounds: list[Filter] = []
    combinations = 1
    for column, condition in zip(columns, query.filters, strict=True):
        if condition.operator == "==":
            equals.append((column, (column.operand(condition.value),)))
        elif condition.operator == "in":
            equals.append((column, _alternatives(column, condition)))
            combinations *= len(equals[-1][1])
        elif condition.operator == "array-contains":
            member = (column, _comparable(column, condition.value))
        elif condition.operator == "not-in":
            bounds.append(Filter(condition.field, "not-in", _alternatives(column, condition)))
        else:
            bounds.append(Filter(condition.field, condition.operator, _comparable(column, condition.value)))
    if bounds:
        _check_types(bounds)
    if combinations > ALTERNATIVES_MAX:
        raise BadQueryError(f"at most {ALTERNATIVES_MAX} combinations of `in` values, not {combinations}")
    return tuple(equals), member, tuple(bounds)


def _check_types(bounds: list[Filter]) -> None:
    """Refuse ranges of mixed types."""
    types: dict[str, bytes] = {}
    for bound in bounds:
        if bound.operator in _RANGES:
            type_of = ordered(bound.value)[:1]
            if types.setdefault(bound.field, type_of) != type_of:
                raise BadQueryError("the bounds on a field are of different types", bound.field)


def _column(schema: Schema[Any], path: str) -> Column:
    return schema.column(path) or make_column(path, schema.fields, schema.name)


def selectable(schema: Schema[Any], path: str) -> Column:
    """Return the column of a field to read by itself; refuses one that no engine has a column for."""
    column = schema.column(path)
    if column is None:
        _column(schema, path)
        raise UnindexedQueryError(f"no index of {schema.name} has {path}; declare one, or read documents")
    if column.kind in ("open", "list"):
        raise BadQueryError("a list, or a field of several types, can only be read with its document", path)
    return column


def _comparable(column: Column, value: Any) -> Any:
    operand = column.operand(value)
    if operand is None:
        raise BadQueryError("null has no order; compare it with == only", column.path)
    return operand


def _alternatives(column: Column, condition: Filter) -> tuple[Any, ...]:
    if not isinstance(condition.value, Iterable) or isinstance(condition.value, (str, bytes)):
        raise BadQueryError(f"`{condition.operator}` takes a list", condition.field)
    # By their byte strings, because True == 1 in Python.
    values = tuple({ordered(v): v for v in (_comparable(column, v) for v in condition.value)}.values())
    if not 1 <= len(values) <= ALTERNATIVES_MAX:
        raise BadQueryError(f"`{condition.operator}` takes 1 to {ALTERNATIVES_MAX} values", condition.field)
    return values


def _order(
    schema: Schema[Any], words: tuple[str, ...], *, bounds: frozenset[str], fixed: frozenset[str]
) -> tuple[OrderTerm, ...]:
    terms: dict[str, OrderTerm] = {}
    for word in words:
        path = word.lstrip("-")
        column = _column(schema, path)
        if path in fixed:
            raise BadQueryError("the order names a field that == fixes", path)
        if column.kind == "list" or path in terms:
            raise BadQueryError(
                "a list has no order" if column.kind == "list" else "the order names a field twice", path
            )
        terms[path] = OrderTerm(column, word.startswith("-"))
    last = bool(terms) and next(reversed(terms.values())).descending
    for path in sorted(bounds):
        terms.setdefault(path, OrderTerm(_column(schema, path), last))
    return tuple(terms.values())


def _with_summed(
    schema: Schema[Any], order: tuple[OrderTerm, ...], field: str, fixed: frozenset[str]
) -> tuple[OrderTerm, ...]:
    column = _column(schema, field)
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


def _check_sparse(index: ResolvedIndex, equals: tuple[tuple[Column, tuple[Any, ...]], ...]) -> None:
    for column, values in equals:
        if column is index.sparse and any(map(index.leaves_out, values)):
            raise UnindexedQueryError(
                f"{index.declared} leaves out documents without {column.path}; to find them, declare it "
                "without sparse",
                column.path,
            )


def _same_width(schema: Schema[Any], declared: Across, asked: Across) -> bool:
    if schema.tenant is None:
        declared = "parents" if declared == "tenants" else declared
        asked = "parents" if asked == "tenants" else asked
    if not schema.path.nested:
        declared = "nothing" if declared == "parents" else declared
        asked = "nothing" if asked == "parents" else asked
    return declared == asked


def _query_fingerprint(query: Query[Any], tenant: str | None) -> bytes:
    """Return what ties a cursor to its query."""
    filters = [
        (f.field, f.operator, value if type(value := f.value) is str else _packable(value))
        for f in query.filters
    ]
    return fingerprint((query.cls.__name__, filters, query.order, query.parent, query.everywhere, tenant))


def _packable(value: Any) -> Any:
    return sorted(map(ordered, value)) if isinstance(value, (set, frozenset)) else value


def _after(
    query: Query[Any], cursor: str, *, order: tuple[OrderTerm, ...], tenant: str | None
) -> tuple[tuple[Any, ...], str]:
    values, key = decode_cursor(cursor, _query_fingerprint(query, tenant), type=tuple[list[Any], str])
    if len(values) != len(order):
        raise BadCursorError("this cursor belongs to another query")
    try:
        operands = [term.column.operand(value) for term, value in zip(order, values, strict=True)]
        join_key(split_key(key), schema_of(query.cls).path.parameters)
    except (WrongTypeError, BadIdError):
        raise BadCursorError("this cursor was modified; use the one of the last page") from None
    return tuple(operands), key
