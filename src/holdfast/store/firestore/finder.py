"""A plan as a Firestore query.

Firestore takes one `!=` or `not-in` a query, of at most ten values and not beside `in`. What it does
not take is sieved here: the query walks on until the page is full.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import BadCursorError, BadIdError
from holdfast.model.columns import Column
from holdfast.model.path import join_key, split_key
from holdfast.store.commit import Snapshot
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.document_names import DocumentNames, Stored
from holdfast.store.firestore.values import decode, encode, encode_list, field_path, value_at
from holdfast.store.firestore.wire import (
    AND,
    ASCENDING,
    DESCENDING,
    IS_NULL,
    OPERATORS,
    Cursor,
    StructuredAggregationQuery,
    StructuredQuery,
    Value,
)
from holdfast.store.intervals import intervals_of
from holdfast.store.plan import QueryPlan
from holdfast.store.query import fitting, totals_of

HOLES_MAX: Final = 10
SIEVED_PAGE_MIN: Final = 50
WALKED_PAGE: Final = 1_000
_NAME: Final = "__name__"
_Filter: Final = StructuredQuery.Filter
_Field: Final = StructuredQuery.FieldReference


class FirestoreScan(msgspec.Struct, frozen=True):
    """A plan ready to be sent: what Firestore filters, and what is left to us."""

    plan: QueryPlan
    parent: str
    query: Any
    sieve: tuple[tuple[Column, tuple[Any, ...]], ...]
    after: Any


class Finder:
    def __init__(self, client: FirestoreClient, places: DocumentNames) -> None:
        self._client = client
        self._places = places

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        walk = self._walk(plan)
        got: list[Snapshot[Any]] = []
        after = walk.after
        while True:
            want = plan.limit - len(got)
            want = max(want, SIEVED_PAGE_MIN) if walk.sieve else want
            rows = await self._page(walk, after, want)
            got += self._kept(walk, rows)
            if len(rows) < want or len(got) >= plan.limit:
                return got[: plan.limit]
            after = cursor_after(rows[-1], [term.column.stored for term in plan.order])

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        walk = self._walk(plan)
        if walk.sieve or walk.after is not None or self._mixed(plan):
            return await self._aggregate_by_walking(plan)
        # Numbers have no order to break ties in, and Firestore sums no field that its order leaves out.
        del walk.query.order_by[-1]
        answer = await self._client.aggregate(walk.parent, _aggregation(plan, walk.query))
        value: int | float | None = decode(answer)
        return value

    async def _pages(self, plan: QueryPlan) -> AsyncIterator[list[Snapshot[Any]]]:
        """All that the plan finds, whatever its limit."""
        step = msgspec.structs.replace(plan, limit=WALKED_PAGE)
        while True:
            found = await self.find(step)
            yield found
            if len(found) < step.limit:
                return
            step = msgspec.structs.replace(step, after=_position(step, found[-1]))

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        """Firestore adds up, but not by groups: the documents are read and added up here."""
        totals: dict[tuple[Any, ...], tuple[int, int | float]] = {}
        async for found in self._pages(plan):
            for values, (count, total) in totals_of(found, by, of).items():
                before = totals.get(values, (0, 0))
                totals[values] = before[0] + count, before[1] + total
        return [(*values, count, fitting(total)) for values, (count, total) in totals.items()]

    async def _aggregate_by_walking(self, plan: QueryPlan) -> int | float | None:
        assert plan.aggregate is not None
        count, numbers = 0, 0
        total: int | float = 0
        async for found in self._pages(plan):
            count += len(found)
            if plan.aggregate.field is not None:
                values = _numbers(plan, found)
                total, numbers = total + sum(values), numbers + len(values)
        if plan.aggregate.function == "count":
            return count
        if plan.aggregate.function == "sum":
            return fitting(total)
        return total / numbers if numbers else None

    def _mixed(self, plan: QueryPlan) -> bool:
        """Whether the collection group holds other environments' documents, which only a walk tells apart."""
        *above, last = plan.schema.path.names
        across = plan.parent is None and plan.schema.path.nested
        return across and "{env}" not in last and any("{env}" in name for name in above)

    async def _page(self, walk: FirestoreScan, after: Any, limit: int) -> list[Any]:
        query = StructuredQuery()
        query.CopyFrom(walk.query)
        query.limit.value = limit
        if after is not None:
            query.start_at.CopyFrom(after)
        return await self._client.query(walk.parent, query)

    def _kept(self, walk: FirestoreScan, rows: Iterable[Any]) -> Iterator[Snapshot[Any]]:
        schema = walk.plan.schema
        for row in rows:
            key = self._places.key(schema, row.name)
            if key is None:
                continue
            item = Stored(schema, key, row).snapshot()
            if all(_passes(column.read(item.doc), holes) for column, holes in walk.sieve):
                yield item

    def _walk(self, plan: QueryPlan) -> FirestoreScan:
        schema, places = plan.schema, self._places
        across = schema.path.nested and plan.parent is None
        parent = places.parent(schema, plan.parent_ids)
        source = StructuredQuery.CollectionSelector(
            collection_id=schema.path.group(places.env), all_descendants=across
        )
        holes, sieve = _split_holes(plan)
        filters = [*_tenancy(plan), *_equalities(plan), *_ranges(plan), *holes]
        order = [(t.column.stored, t.descending) for t in plan.order]
        query = select(source, filters, order, key_descending=plan.key_descending)
        return FirestoreScan(plan, parent, query, sieve, self._start(plan))

    def _start(self, plan: QueryPlan) -> Any:
        if plan.after is None:
            return None
        values, key = plan.after
        ids = split_key(key)
        try:
            join_key(ids, plan.schema.path.parameters)
        except BadIdError:
            raise BadCursorError("this cursor was tampered with") from None
        if plan.parent is not None and ids[:-1] != plan.parent_ids:
            raise BadCursorError("this cursor belongs to another parent")
        return _cursor([encode(value) for value in values], self._places.name(plan.schema, key))


def select(
    source: Any, filters: Sequence[Any], order: Sequence[tuple[str, bool]], *, key_descending: bool = False
) -> Any:
    """A query over one collection or group; ties are broken by id."""
    query = StructuredQuery(order_by=[*(_order(field_path(name), down) for name, down in order)])
    query.from_.append(source)
    query.order_by.append(_order(_NAME, key_descending))
    if filters:
        query.where.CopyFrom(_all(filters))
    return query


def compare(stored: str, operator: str, value: Any) -> Any:
    """One filter; `value` is a Firestore value."""
    field = _Field(field_path=field_path(stored))
    if operator == "==" and value.HasField("null_value"):
        return _Filter(unary_filter=StructuredQuery.UnaryFilter(field=field, op=IS_NULL))
    return _Filter(field_filter=StructuredQuery.FieldFilter(field=field, op=OPERATORS[operator], value=value))


def _all(filters: Sequence[Any]) -> Any:
    if len(filters) == 1:
        return filters[0]
    return _Filter(composite_filter=StructuredQuery.CompositeFilter(op=AND, filters=filters))


def _order(path: str, descending: bool) -> Any:
    return StructuredQuery.Order(
        field=_Field(field_path=path), direction=DESCENDING if descending else ASCENDING
    )


def _tenancy(plan: QueryPlan) -> list[Any]:
    tenant = plan.schema.tenant
    if plan.tenant is None or tenant is None or plan.schema.tenant_is_parent:
        return []
    return [compare(tenant.stored, "==", Value(string_value=plan.tenant))]


def _equalities(plan: QueryPlan) -> Iterator[Any]:
    for column, values in plan.equals:
        if len(values) == 1:
            yield compare(column.stored, "==", encode(values[0]))
        else:
            yield compare(column.stored, "in", encode_list(map(encode, values)))
    if plan.member is not None:
        yield compare(plan.member[0].stored, "array-contains", encode(plan.member[1]))


def _ranges(plan: QueryPlan) -> Iterator[Any]:
    columns = {term.column.path: term.column for term in plan.order}
    for bound in plan.bounds:
        if bound.operator not in ("!=", "not-in"):
            yield compare(columns[bound.field].stored, bound.operator, encode(bound.value))


def _split_holes(plan: QueryPlan) -> tuple[list[Any], tuple[tuple[Column, tuple[Any, ...]], ...]]:
    """The values to leave out: for one column by Firestore where it can, for the rest by us."""
    columns = {term.column.path: term.column for term in plan.order}
    for path in columns:
        intervals_of([bound for bound in plan.bounds if bound.field == path])
    holes: dict[Column, tuple[Any, ...]] = {}
    for bound in plan.bounds:
        if bound.operator in ("!=", "not-in"):
            values = (bound.value,) if bound.operator == "!=" else tuple(bound.value)
            holes[columns[bound.field]] = holes.get(columns[bound.field], ()) + values
    native = next((c for c, values in holes.items() if _fits(plan, len(values))), None)
    filters = [] if native is None else [_hole(native, holes.pop(native))]
    return filters, tuple(holes.items())


def _fits(plan: QueryPlan, count: int) -> bool:
    beside_in = any(len(values) > 1 for _, values in plan.equals)
    return count == 1 or (count <= HOLES_MAX and not beside_in)


def _hole(column: Column, values: tuple[Any, ...]) -> Any:
    if len(values) == 1:
        return compare(column.stored, "!=", encode(values[0]))
    return compare(column.stored, "not-in", encode_list(map(encode, values)))


def _passes(value: Any, holes: tuple[Any, ...]) -> bool:
    if value is None:
        return False
    # True == 1 in Python, not in the store.
    return not any(value == hole and isinstance(value, bool) == isinstance(hole, bool) for hole in holes)


def cursor_after(row: Any, order: Sequence[str]) -> Any:
    """Where a query in this order goes on after a document it gave."""
    return _cursor([value_at(row.fields, stored) for stored in order], row.name)


def _cursor(values: Sequence[Any], name: str) -> Any:
    return Cursor(values=[*values, Value(reference_value=name)], before=False)


def _position(plan: QueryPlan, item: Snapshot[Any]) -> tuple[tuple[Any, ...], str]:
    return tuple(term.column.read(item.doc) for term in plan.order), item.key


def _numbers(plan: QueryPlan, found: Iterable[Snapshot[Any]]) -> list[int | float]:
    assert plan.aggregate is not None
    columns = [t.column for t in plan.order] + [c for c, _ in plan.equals]
    column = next(c for c in columns if c.path == plan.aggregate.field)
    values = [column.read(item.doc) for item in found]
    return [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def _aggregation(plan: QueryPlan, query: Any) -> Any:
    assert plan.aggregate is not None
    one = StructuredAggregationQuery.Aggregation(alias="it")
    if plan.aggregate.field is None:
        one.count.SetInParent()
    else:
        columns = [t.column for t in plan.order] + [c for c, _ in plan.equals]
        stored = next(c.stored for c in columns if c.path == plan.aggregate.field)
        getattr(one, plan.aggregate.function).field.field_path = field_path(stored)
    return StructuredAggregationQuery(structured_query=query, aggregations=[one])
