"""Query planning: finds the declared index that serves a query, the same for every engine, or refuses it."""

from __future__ import annotations

from collections.abc import Iterable
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
from holdfast.model.columns import Column
from holdfast.model.document import schema_of
from holdfast.model.index import Across, ResolvedIndex
from holdfast.model.limits import ALTERNATIVES_MAX
from holdfast.model.path import JOINT, join_key, split_key
from holdfast.model.schema import Schema
from holdfast.model.sort_key import ordered
from holdfast.store.cursors import decode_cursor, encode_cursor, fingerprint
from holdfast.store.index_choice import (
    RANGES,
    OrderTerm,
    QueryShape,
    choose_shape,
    column_of,
    filter_columns,
    known_shapes,
)
from holdfast.store.query import Filter, Query

_FIELD_AND_OPERATOR: Final = attrgetter("field", "operator")
_Equals = tuple[tuple[Column, tuple[Any, ...]], ...]


class Aggregate(msgspec.Struct, frozen=True):
    function: Literal["count", "sum", "avg"]
    field: str | None = None


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
    shape = known_shapes.get((schema, filters, query.order, across, summed))
    equals: _Equals
    member: tuple[Column, Any] | None = None
    bounds: tuple[Filter, ...] = ()
    if shape is not None and shape.plain:
        operands = zip(shape.columns, query.filters, strict=True)
        equals = tuple([(column, (column.operand(one.value),)) for column, one in operands])
    else:
        equals, member, bounds = _operands(query, filter_columns(schema, filters))
        shape = shape or choose_shape(schema, filters, query.order, summed=summed, across=across)
    if shape.index is not None and shape.index.sparse is not None:
        _check_sparse(shape.index, equals)
    return QueryPlan(
        schema=schema, shape=shape, tenant=tenant if schema.tenant else None,
        parent=JOINT.join(parent_ids) if parent_ids else None, parent_ids=parent_ids, equals=equals,
        member=member, bounds=bounds, limit=query.size,
        after=None if query.cursor is None else _after(query, query.cursor, order=shape.order, tenant=tenant),
        identity=(query, tenant), aggregate=aggregate,
    )  # fmt: skip


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
        if bound.operator in RANGES:
            type_of = ordered(bound.value)[:1]
            if types.setdefault(bound.field, type_of) != type_of:
                raise BadQueryError("the bounds on a field are of different types", bound.field)


def selectable(schema: Schema[Any], path: str) -> Column:
    """Return the column of a field to read by itself; refuses one that no engine has a column for."""
    column = schema.column(path)
    if column is None:
        column_of(schema, path)
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


def _check_sparse(index: ResolvedIndex, equals: tuple[tuple[Column, tuple[Any, ...]], ...]) -> None:
    for column, values in equals:
        if column is index.sparse and any(map(index.leaves_out, values)):
            raise UnindexedQueryError(
                f"{index.declared} leaves out documents without {column.path}; to find them, declare it "
                "without sparse",
                column.path,
            )


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
