"""Asking: filters, order, limit, cursor, and the declared index that serves them.

`resolve` turns a query into a `Plan` or refuses it, the same way for every engine: equality fields
must open an index, the order must follow in it, and nothing else may be in it. An engine only has to
walk the index it is given.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Final, Generic, Literal, TypeVar, get_args

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
from holdfast.model.document import Document, schema_of
from holdfast.model.index import Across, Index, ResolvedIndex
from holdfast.model.limits import ALTERNATIVES_MAX, INTEGER_MAX, INTEGER_MIN, PAGE_MAX
from holdfast.model.order import ordered
from holdfast.model.path import JOINT, join_key, split_key
from holdfast.model.schema import Schema
from holdfast.store.commit import Snapshot

D = TypeVar("D", bound=Document)
Operator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not-in", "array-contains"]
_EQUALITIES: Final = ("==", "in", "array-contains")
_RANGES: Final = ("<", "<=", ">", ">=")


class Filter(msgspec.Struct, frozen=True):
    field: str
    operator: Operator
    value: Any


class Query(msgspec.Struct, Generic[D], frozen=True):
    """A question about one collection. Each method gives a new query.

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
        if operator not in get_args(Operator):
            raise BadQueryError(f"{operator!r} is none of {', '.join(get_args(Operator))}", field)
        return msgspec.structs.replace(self, filters=(*self.filters, Filter(field, operator, value)))

    def order_by(self, *fields: str) -> Query[D]:
        """Fields in order; a leading `-` is descending. The id breaks ties in the last direction."""
        return msgspec.structs.replace(self, order=(*self.order, *fields))

    def limit(self, size: int) -> Query[D]:
        if not 1 <= size <= PAGE_MAX:
            raise BadQueryError(f"a page has 1 to {PAGE_MAX} documents, not {size}")
        return msgspec.structs.replace(self, size=size)

    def after(self, cursor: str | None) -> Query[D]:
        """Go on where the page that gave this cursor ended."""
        return msgspec.structs.replace(self, cursor=cursor)

    def under(self, *ids: str) -> Query[D]:
        """Only the sub-collection of this parent document."""
        return msgspec.structs.replace(self, parent=ids)

    def across_parents(self) -> Query[D]:
        """All sub-collections of this name, inside the tenant where there is one."""
        return msgspec.structs.replace(self, everywhere=True)


class Page(msgspec.Struct, Generic[D], frozen=True):
    """Some documents, and the cursor that goes on after them (None at the end)."""

    items: list[Snapshot[D]]
    cursor: str | None

    @property
    def docs(self) -> list[D]:
        return [item.doc for item in self.items]


def rows_of(found: Iterable[Snapshot[Any]], columns: Sequence[Column]) -> list[tuple[Any, ...]]:
    """Keys and plain values, for engines whose documents hold all there is."""
    return [(item.key, *[column.read(item.doc) for column in columns]) for item in found]


def totals_of(
    found: Iterable[Snapshot[Any]], by: Sequence[Column], of: Column | None
) -> dict[tuple[Any, ...], tuple[int, int | float]]:
    """Counts and sums by the values of some columns, for the same engines."""
    totals: dict[tuple[Any, ...], tuple[int, int | float]] = {}
    for item in found:
        values = tuple([column.read(item.doc) for column in by])
        count, total = totals.get(values, (0, 0))
        value = None if of is None else of.read(item.doc)
        totals[values] = count + 1, total + (value or 0)
    return totals


def fitting(total: int | float) -> int | float:
    """A sum as every engine gives it: whole while it fits 64 bits."""
    return total if INTEGER_MIN <= total <= INTEGER_MAX else float(total)


class Aggregate(msgspec.Struct, frozen=True):
    function: Literal["count", "sum", "avg"]
    field: str | None = None


class Interval(msgspec.Struct, frozen=True):
    """A stretch of one column's values; None is open. A range keeps to its operand's type, `any_type` not."""

    low: Any = None
    low_open: bool = False
    high: Any = None
    high_open: bool = False
    any_type: bool = False


class OrderTerm(msgspec.Struct, frozen=True):
    column: Column
    descending: bool


class Plan(msgspec.Struct, frozen=True):
    """A query with its index found: what an engine walks."""

    schema: Schema[Any]
    index: ResolvedIndex | None  # None: by id alone
    tenant: str | None  # None: not filtered (untenanted, or a privileged handle)
    parent: str | None  # None: not filtered (top level, or across parents)
    parent_ids: tuple[str, ...]
    equals: tuple[tuple[Column, tuple[Any, ...]], ...]  # alternatives; more than one is `in`
    member: tuple[Column, Any] | None
    order: tuple[OrderTerm, ...]
    bounds: tuple[Filter, ...]  # ranges, != and not-in, all on order terms; see intervals_of
    key_descending: bool
    limit: int
    after: tuple[tuple[Any, ...], str] | None
    fingerprint: bytes
    aggregate: Aggregate | None = None

    def cursor_at(self, document: Any, key: str) -> str:
        values = [term.column.read(document) for term in self.order]
        return base64.urlsafe_b64encode(_PACK.encode((self.fingerprint, values, key))).decode().rstrip("=")


_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder(tuple[bytes, list[Any], str])


def resolve(
    query: Query[D], *, tenant: str | None, privileged: bool, aggregate: Aggregate | None = None
) -> Plan:
    """Find the declared index that serves the query, or refuse with the one to declare."""
    schema = schema_of(query.cls)
    if schema.tenant is not None and tenant is None and not privileged:
        raise WrongTenantError(
            f"{schema.name} belongs to tenants: use store.tenant(...) or store.privileged()"
        )
    parent_ids, across = _scope(schema, query, tenant=tenant if schema.tenant else None)
    equals, member, bounds = _split(schema, query)
    order = _order(schema, query, bounds, equals)
    if aggregate is not None and aggregate.field is not None:
        order = _with_summed(schema, order, aggregate.field, equals)
    wanted = _Wanted(frozenset(c.path for c, _ in equals), member, order, across)
    index = _choose(schema, wanted)
    return Plan(
        schema=schema, index=index, tenant=tenant if schema.tenant else None,
        parent=JOINT.join(parent_ids) if parent_ids else None, parent_ids=parent_ids, equals=equals,
        member=None if member is None else (member[0], member[1]), order=order,
        bounds=tuple(f for _, f in bounds),
        key_descending=bool(order) and order[-1].descending, limit=query.size,
        after=_after(query, order, tenant), fingerprint=_fingerprint(query, tenant), aggregate=aggregate,
    )  # fmt: skip


class _Wanted(msgspec.Struct, frozen=True):
    equals: frozenset[str]
    member: tuple[Column, Any] | None
    order: tuple[OrderTerm, ...]
    across: Across

    def declaration(self) -> Index:
        head = sorted(self.equals)
        head += [f"{self.member[0].path}[]"] if self.member else []
        return Index(
            *head, *(("-" if t.descending else "") + t.column.path for t in self.order), across=self.across
        )


def _scope(schema: Schema[Any], query: Query[Any], *, tenant: str | None) -> tuple[tuple[str, ...], Across]:
    """Which part of the collection is asked: one parent's, one tenant's, or all of it."""
    crossing = schema.tenant is not None and tenant is None
    if not schema.path.nested:
        return (), "tenants" if crossing else "nothing"
    if query.parent is not None:
        join_key(query.parent, schema.path.parameters[:-1])
        if schema.tenant_is_parent and tenant is not None and query.parent != (tenant,):
            raise WrongTenantError(f"{schema.name}: this handle reads another tenant's documents only")
        return query.parent, "nothing"
    if schema.tenant_is_parent and tenant is not None:
        return (tenant,), "nothing"
    if not query.everywhere:
        raise BadQueryError(f"{schema.name} is a sub-collection: say .under(parent id) or .across_parents()")
    return (), "tenants" if crossing else "parents"


def _split(
    schema: Schema[Any], query: Query[Any]
) -> tuple[
    tuple[tuple[Column, tuple[Any, ...]], ...], tuple[Column, Any] | None, list[tuple[Column, Filter]]
]:
    equals: dict[str, tuple[Column, tuple[Any, ...]]] = {}
    member: tuple[Column, Any] | None = None
    bounds: list[tuple[Column, Filter]] = []
    for condition in query.filters:
        column = _column(schema, condition.field)
        if condition.operator in _EQUALITIES and (
            condition.field in equals or (member and condition.operator == "array-contains")
        ):
            raise BadQueryError("say each field's equality once", condition.field)
        if condition.operator == "array-contains":
            if column.kind != "list":
                raise BadQueryError(f"{condition.field} is no list", condition.field)
            member = (column, _comparable(column, condition.value))
        elif column.kind == "list":
            raise BadQueryError("ask a list only what it contains: array-contains", condition.field)
        elif condition.operator == "==":
            equals[condition.field] = (column, (column.operand(condition.value),))
        elif condition.operator == "in":
            equals[condition.field] = (column, _alternatives(column, condition))
        elif condition.operator == "not-in":
            bounds.append((column, Filter(condition.field, "not-in", _alternatives(column, condition))))
        else:
            bounds.append(
                (column, Filter(condition.field, condition.operator, _comparable(column, condition.value)))
            )
    clash = next((f.field for c, f in bounds if f.field in equals), None)
    if clash:
        raise BadQueryError("a field is compared with == and with a range; one of them says enough", clash)
    _check_bounds([f for _, f in bounds])
    combinations = 1
    for _, values in equals.values():
        combinations *= len(values)
    if combinations > ALTERNATIVES_MAX:
        raise BadQueryError(f"at most {ALTERNATIVES_MAX} combinations of `in` values, not {combinations}")
    return tuple(equals.values()), member, bounds


def _check_bounds(bounds: list[Filter]) -> None:
    """A range is of one type, and a field has either a range or values it must not have."""
    for field in {bound.field for bound in bounds}:
        mine = [bound for bound in bounds if bound.field == field]
        ranges = [bound for bound in mine if bound.operator in _RANGES]
        if ranges and len(ranges) < len(mine):
            raise BadQueryError("a field takes either != / not-in or a range", field)
        if len({ordered(bound.value)[:1] for bound in ranges}) > 1:
            raise BadQueryError("the bounds on a field are of different types", field)


def _column(schema: Schema[Any], path: str) -> Column:
    return schema.column(path) or make_column(path, schema.fields, schema.name)


def selectable(schema: Schema[Any], path: str) -> Column:
    """The column of a field to read by itself, refused where the engines keep none of it."""
    column = schema.column(path)
    if column is None:
        _column(schema, path)
        raise UnindexedQueryError(f"no index of {schema.name} holds {path}: declare one, or read documents")
    if column.kind in ("open", "list"):
        raise BadQueryError("a field of several types, or a list, is read with its document", path)
    return column


def _comparable(column: Column, value: Any) -> Any:
    operand = column.operand(value)
    if operand is None:
        raise BadQueryError("null has no order: compare with == null only", column.path)
    return operand


def _alternatives(column: Column, condition: Filter) -> tuple[Any, ...]:
    if not isinstance(condition.value, Iterable) or isinstance(condition.value, (str, bytes)):
        raise BadQueryError(f"`{condition.operator}` takes a list", condition.field)
    # By their byte strings, because Python takes True for 1.
    values = tuple({ordered(v): v for v in (_comparable(column, v) for v in condition.value)}.values())
    if not 1 <= len(values) <= ALTERNATIVES_MAX:
        raise BadQueryError(f"`{condition.operator}` takes 1 to {ALTERNATIVES_MAX} values", condition.field)
    return values


def _order(
    schema: Schema[Any],
    query: Query[Any],
    bounds: list[tuple[Column, Filter]],
    equals: tuple[tuple[Column, tuple[Any, ...]], ...],
) -> tuple[OrderTerm, ...]:
    terms: dict[str, OrderTerm] = {}
    fixed = {c.path for c, values in equals}
    for word in query.order:
        path = word.lstrip("-")
        column = _column(schema, path)
        if path in fixed:
            raise BadQueryError("the order names a field that == has fixed already", path)
        if column.kind == "list" or path in terms:
            raise BadQueryError(
                "a list has no order" if column.kind == "list" else "the order names a field twice", path
            )
        terms[path] = OrderTerm(column, word.startswith("-"))
    last = bool(terms) and next(reversed(terms.values())).descending
    for path in sorted({f.field for _, f in bounds}):
        terms.setdefault(path, OrderTerm(_column(schema, path), last))
    return tuple(terms.values())


def _with_summed(
    schema: Schema[Any],
    order: tuple[OrderTerm, ...],
    field: str,
    equals: tuple[tuple[Column, tuple[Any, ...]], ...],
) -> tuple[OrderTerm, ...]:
    column = _column(schema, field)
    if column.kind not in ("integer", "number"):
        raise BadQueryError(f"{field} holds no numbers to add up", field)
    if any(t.column.path == field for t in order) or any(c.path == field for c, _ in equals):
        return order
    return (*order, OrderTerm(column, False))


def _choose(schema: Schema[Any], wanted: _Wanted) -> ResolvedIndex | None:
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
    """Walking ids needs no index unless a tenant's must be picked out among others'."""
    return schema.tenant is None or across == "tenants" or schema.tenant_is_parent or (
        schema.path.nested and across == "nothing")  # fmt: skip


def _serves(index: ResolvedIndex, wanted: _Wanted, schema: Schema[Any]) -> bool:
    if index.across != wanted.across and not _same_reach(schema, index.across, wanted.across):
        return False
    head = len(wanted.equals) + (1 if wanted.member else 0)
    front, rest = index.fields[:head], index.fields[head:]
    if {f.column.path for f in front if not f.member} != wanted.equals or len(front) != head:
        return False
    members = [f.column.path for f in front if f.member]
    if members != ([wanted.member[0].path] if wanted.member else []):
        return False
    if [f.column.path for f in rest] != [t.column.path for t in wanted.order] or any(f.member for f in rest):
        return False
    turned = {f.descending != t.descending for f, t in zip(rest, wanted.order, strict=True)}
    return len(turned) <= 1


def _same_reach(schema: Schema[Any], declared: Across, asked: Across) -> bool:
    if schema.tenant is None:
        declared = "parents" if declared == "tenants" else declared
        asked = "parents" if asked == "tenants" else asked
    if not schema.path.nested:
        declared = "nothing" if declared == "parents" else declared
        asked = "nothing" if asked == "parents" else asked
    return declared == asked


def intervals_of(bounds: list[Filter]) -> tuple[Interval, ...]:
    """The stretches that the bounds on one column leave, in ascending order."""
    low: tuple[Any, bool] | None = None
    high: tuple[Any, bool] | None = None
    holes: dict[bytes, Any] = {}
    for bound in bounds:
        if bound.operator in (">", ">="):
            edge = (bound.value, bound.operator == ">")
            low = edge if low is None or _tighter(edge, low, 1) else low
        elif bound.operator in ("<", "<="):
            edge = (bound.value, bound.operator == "<")
            high = edge if high is None or _tighter(edge, high, -1) else high
        elif bound.operator == "!=":
            holes[ordered(bound.value)] = bound.value
        else:
            holes.update((ordered(value), value) for value in bound.value)
    if not bounds:
        return (Interval(),)
    if not holes:
        return (_interval(low, high),)
    return _around(holes)


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


def _around(holes: dict[bytes, Any]) -> tuple[Interval, ...]:
    edges: list[tuple[Any, bool] | None] = [None]
    edges += [(value, True) for _, value in sorted(holes.items())]
    edges.append(None)
    return tuple(_interval(a, b, any_type=True) for a, b in itertools.pairwise(edges))


def _fingerprint(query: Query[Any], tenant: str | None) -> bytes:
    """Ties a cursor to its question, so that it can't page into another."""
    asked = (query.cls.__name__, [(f.field, f.operator, _packable(f.value)) for f in query.filters],
             query.order, query.parent, query.everywhere, tenant)  # fmt: skip
    return hashlib.blake2b(_PACK.encode(asked), digest_size=8).digest()


def _packable(value: Any) -> Any:
    return sorted(map(ordered, value)) if isinstance(value, (set, frozenset)) else value


def _after(
    query: Query[Any], order: tuple[OrderTerm, ...], tenant: str | None
) -> tuple[tuple[Any, ...], str] | None:
    if query.cursor is None:
        return None
    try:
        raw = base64.urlsafe_b64decode(query.cursor + "=" * (-len(query.cursor) % 4))
        mark, values, key = _UNPACK.decode(raw)
    except (ValueError, binascii.Error, msgspec.DecodeError, UnicodeError):
        raise BadCursorError("not a cursor; use the one the last page gave") from None
    if mark != _fingerprint(query, tenant) or len(values) != len(order):
        raise BadCursorError("this cursor belongs to another query")
    try:
        operands = [term.column.operand(value) for term, value in zip(order, values, strict=True)]
        join_key(split_key(key), schema_of(query.cls).path.parameters)
    except (WrongTypeError, BadIdError):
        raise BadCursorError("this cursor was tampered with") from None
    return tuple(operands), key
