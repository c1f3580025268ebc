"""Query plans as Firestore queries.

Firestore takes one `!=` or `not-in` per query, of at most ten values and not together with `in`. What it
does not take is filtered here: the query continues until the page is full.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import BadCursorError
from holdfast.model.columns import Column
from holdfast.model.path import split_key
from holdfast.model.schema import Schema
from holdfast.store.commit import Snapshot
from holdfast.store.firestore.client import FirestoreClient
from holdfast.store.firestore.document_names import DocumentNames
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
from holdfast.store.plan import QueryPlan
from holdfast.store.query import fitting, totals_of

EXCLUDED_MAX: Final = 10
FILTERED_PAGE_MIN: Final = 50
SCANNED_PAGE: Final = 1_000
_NAME: Final = "__name__"
_Filter: Final = StructuredQuery.Filter
_Field: Final = StructuredQuery.FieldReference


class FirestoreScan(msgspec.Struct, frozen=True):
    """A plan ready to be sent: Firestore's query, and the values to exclude here."""

    plan: QueryPlan
    parent: str
    query: Any
    excluded: tuple[tuple[Column, tuple[Any, ...]], ...]
    after: Any


class Finder:
    def __init__(self, client: FirestoreClient, names: DocumentNames) -> None:
        self._client = client
        self._names = names

    async def find(self, plan: QueryPlan) -> list[Snapshot[Any]]:
        scan = self._scan(plan)
        found: list[Snapshot[Any]] = []
        after = scan.after
        while True:
            want = plan.limit - len(found)
            want = max(want, FILTERED_PAGE_MIN) if scan.excluded else want
            rows = await self._page(scan, after, want)
            found += self._filtered(scan, rows)
            if len(rows) < want or len(found) >= plan.limit:
                return found[: plan.limit]
            after = cursor_after(rows[-1], [term.column.stored for term in plan.order])

    async def aggregate(self, plan: QueryPlan) -> int | float | None:
        scan = self._scan(plan)
        if scan.excluded or scan.after is not None or self._mixed(plan):
            return await self._aggregate_by_scan(plan)
        # Numbers have no order to break ties in, and Firestore sums no field that its order leaves out.
        del scan.query.order_by[-1]
        answer = await self._client.aggregate(scan.parent, _aggregation(plan, scan.query))
        value: int | float | None = decode(answer)
        return value

    async def _pages(self, plan: QueryPlan) -> AsyncIterator[list[Snapshot[Any]]]:
        """Yield all that the plan finds, whatever its limit."""
        step = msgspec.structs.replace(plan, limit=SCANNED_PAGE)
        while True:
            found = await self.find(step)
            yield found
            if len(found) < step.limit:
                return
            step = msgspec.structs.replace(step, after=_position(step, found[-1]))

    async def totals(self, plan: QueryPlan, by: Sequence[Column], of: Column | None) -> list[tuple[Any, ...]]:
        """Sum here over all documents read: Firestore does not group."""
        totals: dict[tuple[Any, ...], tuple[int, int | float]] = {}
        async for found in self._pages(plan):
            for values, (count, total) in totals_of(found, by, of).items():
                before = totals.get(values, (0, 0))
                totals[values] = before[0] + count, before[1] + total
        return [(*values, count, fitting(total)) for values, (count, total) in totals.items()]

    async def _aggregate_by_scan(self, plan: QueryPlan) -> int | float | None:
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
        """Whether the collection group has other environments' documents, which only a scan tells apart."""
        *above, last = plan.schema.path.names
        across = plan.parent is None and plan.schema.path.nested
        return across and "{env}" not in last and any("{env}" in name for name in above)

    async def _page(self, scan: FirestoreScan, after: Any, limit: int) -> list[Any]:
        query = StructuredQuery()
        query.CopyFrom(scan.query)
        query.limit.value = limit
        if after is not None:
            query.start_at.CopyFrom(after)
        return await self._client.query(scan.parent, query)

    def _filtered(self, scan: FirestoreScan, rows: Iterable[Any]) -> Iterator[Snapshot[Any]]:
        for item in self._names.snapshots(scan.plan.schema, rows):
            if all(_passes(column.read(item.doc), excluded) for column, excluded in scan.excluded):
                yield item

    def _scan(self, plan: QueryPlan) -> FirestoreScan:
        schema = plan.schema
        parent = self._names.parent(schema, plan.parent_ids)
        source = self._names.source(schema, across_parents=schema.path.nested and plan.parent is None)
        filters, excluded = _split_excluded(plan)
        filters = [*tenant_filter(schema, plan.tenant), *_equalities(plan), *_ranges(plan), *filters]
        order = [(t.column.stored, t.descending) for t in plan.order]
        query = select(source, filters, order, key_descending=plan.key_descending)
        return FirestoreScan(plan, parent, query, excluded, self._start(plan))

    def _start(self, plan: QueryPlan) -> Any:
        if plan.after is None:
            return None
        values, key = plan.after
        if plan.parent is not None and split_key(key)[:-1] != plan.parent_ids:
            raise BadCursorError("this cursor belongs to another parent")
        return _cursor([encode(value) for value in values], self._names.name(plan.schema, key))


def select(
    source: Any, filters: Sequence[Any], order: Sequence[tuple[str, bool]], *, key_descending: bool = False
) -> Any:
    """Return a query over one collection or group; ties are broken by id."""
    query = StructuredQuery(order_by=[*(_order(field_path(name), down) for name, down in order)])
    query.from_.append(source)
    query.order_by.append(_order(_NAME, key_descending))
    if filters:
        query.where.CopyFrom(_all(filters))
    return query


def compare(stored: str, operator: str, value: Any) -> Any:
    """Return one filter; `value` is a Firestore value."""
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


def tenant_filter(schema: Schema[Any], tenant: str | None) -> list[Any]:
    """Return the filter of a tenant's documents, unless they are under the tenant."""
    if tenant is None or schema.tenant is None or schema.tenant_is_parent:
        return []
    return [compare(schema.tenant.stored, "==", encode(tenant))]


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


def _split_excluded(plan: QueryPlan) -> tuple[list[Any], tuple[tuple[Column, tuple[Any, ...]], ...]]:
    """Split the values to exclude: one column's to Firestore where it takes them, the others' to us."""
    columns = {term.column.path: term.column for term in plan.order}
    excluded: dict[Column, tuple[Any, ...]] = {}
    for bound in plan.bounds:
        if bound.operator in ("!=", "not-in"):
            values = (bound.value,) if bound.operator == "!=" else tuple(bound.value)
            excluded[columns[bound.field]] = excluded.get(columns[bound.field], ()) + values
    native = next((c for c, values in excluded.items() if _fits(plan, len(values))), None)
    filters = [] if native is None else [_exclusion(native, excluded.pop(native))]
    return filters, tuple(excluded.items())


def _fits(plan: QueryPlan, count: int) -> bool:
    with_in = any(len(values) > 1 for _, values in plan.equals)
    return count == 1 or (count <= EXCLUDED_MAX and not with_in)


def _exclusion(column: Column, values: tuple[Any, ...]) -> Any:
    if len(values) == 1:
        return compare(column.stored, "!=", encode(values[0]))
    return compare(column.stored, "not-in", encode_list(map(encode, values)))


def _passes(value: Any, excluded: tuple[Any, ...]) -> bool:
    if value is None:
        return False
    # True == 1 in Python, not in the store.
    return not any(
        value == other and isinstance(value, bool) == isinstance(other, bool) for other in excluded
    )


def cursor_after(row: Any, order: Sequence[str]) -> Any:
    """Return the cursor that continues a query in this order after a document."""
    return _cursor([value_at(row.fields, stored) for stored in order], row.name)


def _cursor(values: Sequence[Any], name: str) -> Any:
    return Cursor(values=[*values, Value(reference_value=name)], before=False)


def _position(plan: QueryPlan, item: Snapshot[Any]) -> tuple[tuple[Any, ...], str]:
    return tuple(term.column.read(item.doc) for term in plan.order), item.key


def _numbers(plan: QueryPlan, found: Iterable[Snapshot[Any]]) -> list[int | float]:
    column = _summed_column(plan)
    values = [column.read(item.doc) for item in found]
    return [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def _summed_column(plan: QueryPlan) -> Column:
    assert plan.aggregate is not None
    columns = [t.column for t in plan.order] + [c for c, _ in plan.equals]
    return next(c for c in columns if c.path == plan.aggregate.field)


def _aggregation(plan: QueryPlan, query: Any) -> Any:
    assert plan.aggregate is not None
    one = StructuredAggregationQuery.Aggregation(alias="it")
    if plan.aggregate.field is None:
        one.count.SetInParent()
    else:
        stored = _summed_column(plan).stored
        getattr(one, plan.aggregate.function).field.field_path = field_path(stored)
    return StructuredAggregationQuery(structured_query=query, aggregations=[one])
