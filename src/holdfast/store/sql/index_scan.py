"""A query plan as SQL: each branch is one range of one index, so cost follows the result.

`in`, `!=`, `not-in` and cursors split a query into several ranges; each is read in order with its own
limit, and the rows are merged.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from holdfast.model.columns import Column
from holdfast.model.path import JOINT
from holdfast.model.sort_key import NULL, bracket, everything, ordered
from holdfast.store.index_choice import OrderTerm
from holdfast.store.intervals import Interval, intervals_of
from holdfast.store.plan import QueryPlan
from holdfast.store.query import fitting
from holdfast.store.sql.dialect import Bound, Dialect, quote
from holdfast.store.sql.tables import ITEM, KEY, PARENT, index_condition, index_name, items_table


class IndexRange(msgspec.Struct, frozen=True):
    """A range of one column's stored values; `unbounded` has no bounds at all, `null` is null alone."""

    low: Any = None
    low_open: bool = False
    high: Any = None
    high_open: bool = False
    null: bool = False
    unbounded: bool = False
    present: bool = False  # everything but SQL's NULL


Equals = tuple[tuple[Column, Any], ...]
Rest = tuple[tuple[Column, tuple[IndexRange, ...]], ...]


class Branch(msgspec.Struct, frozen=True):
    """Equalities, then one range, then for later columns the ranges one of which must hold."""

    equals: Equals = ()
    range: tuple[Column, IndexRange] | None = None
    rest: Rest = ()
    key: str | None = None


def select(plan: QueryPlan, table: str, *, dialect: Dialect, columns: Sequence[str]) -> tuple[str, list[Any]]:
    """Return the statement that finds the plan's page: columns of the main table, in order."""
    bound = Bound(dialect)
    origin = _origin(plan, table, dialect)
    order = [(f"{origin.alias}.{quote(t.column.stored)}", t.descending) for t in plan.order]
    order.append((origin.key, plan.key_descending))
    branches = list(_branches(plan))
    shown = ", ".join(f"t.{quote(c)}" for c in columns)
    if not branches:
        # Only a forged cursor can lie beyond all that the filters leave.
        return f"SELECT {shown} FROM {quote(table)} AS t WHERE 1 = 0", []
    if len(branches) == 1:
        # The primary key is never null, so its plain order is the index's.
        plain = plan.index is None
        terms = origin.key if plain else ", ".join(dialect.ordered(name, down) for name, down in order)
        where = _where(plan, branches[0], origin, bound)
        return f"SELECT {shown} FROM {origin.source}{where} ORDER BY {terms} LIMIT {plan.limit}", bound.values
    return _merged(plan, branches, origin, order=order, columns=columns, bound=bound, dialect=dialect)


def _merged(
    plan: QueryPlan,
    branches: list[Branch],
    origin: Origin,
    *,
    order: list[tuple[str, bool]],
    columns: Sequence[str],
    bound: Bound,
    dialect: Dialect,
) -> tuple[str, list[Any]]:
    shown = ", ".join(
        [f"t.{quote(c)} AS c{n}" for n, c in enumerate(columns)]
        + [f"{name} AS o{n}" for n, (name, _) in enumerate(order)]
    )
    inner_terms = ", ".join(dialect.ordered(name, down) for name, down in order)
    outer_terms = ", ".join(dialect.ordered(f"o{n}", down) for n, (_, down) in enumerate(order))
    parts = [
        f"SELECT * FROM (SELECT {shown} FROM {origin.source}{_where(plan, branch, origin, bound)}"
        f" ORDER BY {inner_terms} LIMIT {plan.limit}) AS b{n}"
        for n, branch in enumerate(branches)
    ]
    outer = ", ".join(f"c{n}" for n in range(len(columns)))
    union = " UNION ALL ".join(parts)
    return f"SELECT {outer} FROM ({union}) AS u ORDER BY {outer_terms} LIMIT {plan.limit}", bound.values


def aggregate(plan: QueryPlan, table: str, *, dialect: Dialect) -> tuple[str, list[Any]]:
    """Return the statement that counts rows and values and sums the values."""
    assert plan.aggregate is not None
    bound = Bound(dialect)
    origin = _origin(plan, table, dialect)
    summed = None if plan.aggregate.field is None else plan.schema.column(plan.aggregate.field)
    value = "1" if summed is None else f"{origin.alias}.{quote(summed.stored)}"
    parts = [
        f"SELECT {value} AS v FROM {origin.source}{_where(plan, b, origin, bound)}" for b in _branches(plan)
    ]
    total = "NULL" if summed is None else "sum(v)"
    return f"SELECT count(*), count(v), {total} FROM ({' UNION ALL '.join(parts)}) AS u", bound.values


def totals(
    plan: QueryPlan, table: str, *, dialect: Dialect, by: Sequence[Column], of: Column | None
) -> tuple[str, list[Any]]:
    """Return the statement that counts and sums, grouped by some columns."""
    bound = Bound(dialect)
    origin = _origin(plan, table, dialect)
    names = [f"g{n}" for n in range(len(by))]
    shown = [f"t.{quote(column.stored)} AS {name}" for name, column in zip(names, by, strict=True)]
    shown.append(f"{'1' if of is None else 't.' + quote(of.stored)} AS v")
    parts = [
        f"SELECT {', '.join(shown)} FROM {origin.source}{_where(plan, b, origin, bound)}"
        for b in _branches(plan)
    ]
    total = "0" if of is None else "sum(v)"
    groups = f" GROUP BY {', '.join(names)}" if names else " HAVING count(*) > 0"
    results = ", ".join([*names, "count(*)", total])
    return f"SELECT {results} FROM ({' UNION ALL '.join(parts)}) AS u{groups}", bound.values


def aggregate_result(plan: QueryPlan, row: Sequence[Any]) -> int | float | None:
    """Return an aggregate's value; integer sums stay integers while they fit 64 bits, as on every engine."""
    assert plan.aggregate is not None
    rows, counted, total = row
    if plan.aggregate.function == "count":
        return int(rows)
    total = sum_result(total)
    if plan.aggregate.function == "sum":
        return total or 0
    return total / counted if counted else None


def sum_result(total: Any) -> int | float | None:
    """Return a database's sum as every engine gives it, None of nothing."""
    return None if total is None else fitting(int(total) if isinstance(total, Decimal) else total)


class Origin(msgspec.Struct, frozen=True):
    """The source of a plan's rows: tables, the alias of the indexed one, the key, the index's condition."""

    source: str
    alias: str
    key: str
    condition: str = ""


def _origin(plan: QueryPlan, table: str, dialect: Dialect) -> Origin:
    key = quote(KEY)
    if plan.index is None:
        return Origin(f"{quote(table)} AS t", "t", f"t.{key}")
    name = index_name(table, plan.index, dialect)
    use = dialect.use_index(name)
    if plan.index.member is None:
        source, alias = f"{quote(table)} AS t{use}", "t"
    else:
        items = quote(items_table(table, plan.index, dialect))
        source, alias = f"{items} AS i{use} JOIN {quote(table)} AS t ON t.{key} = i.{key}", "i"
    condition = index_condition(plan.index, name, dialect=dialect, alias=f"{alias}.")
    return Origin(source, alias, dialect.tie(f"{alias}.{key}"), condition)


def _where(plan: QueryPlan, branch: Branch, origin: Origin, bound: Bound) -> str:
    alias = origin.alias
    conditions = [origin.condition] if origin.condition else []
    if plan.parent is not None:
        conditions += _under(plan, plan.parent, alias, bound)
    if plan.tenant is not None and plan.schema.tenant is not None and not plan.schema.tenant_is_parent:
        table = alias if plan.parent is None else "t"
        conditions.append(f"{table}.{quote(plan.schema.tenant.stored)} = {bound.add(plan.tenant)}")
    if plan.member is not None:
        conditions.append(f"{alias}.{quote(ITEM)} = {bound.add(ordered(plan.member[1]))}")
    for column, value in branch.equals:
        conditions.append(_equal(f"{alias}.{quote(column.stored)}", column, value, bound))
    if branch.range is not None:
        conditions += _within(f"{alias}.{quote(branch.range[0].stored)}", branch.range[1], bound)
    for column, choices in branch.rest:
        conditions += _any_of(f"{alias}.{quote(column.stored)}", choices, bound)
    if branch.key is not None:
        conditions.append(f"{origin.key} {'<' if plan.key_descending else '>'} {bound.add(branch.key)}")
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _under(plan: QueryPlan, parent: str, alias: str, bound: Bound) -> list[str]:
    if plan.index is not None:
        return [f"{alias}.{quote(PARENT)} = {bound.add(parent)}"]
    # A scan by id uses the primary key, of which a parent's children are one range.
    key = f"{alias}.{quote(KEY)}"
    return [f"{key} > {bound.add(parent + JOINT)}", f"{key} < {bound.add(parent + chr(ord(JOINT) + 1))}"]


def _equal(name: str, column: Column, value: Any, bound: Bound) -> str:
    if column.kind == "open":
        return f"{name} = {bound.add(ordered(value))}"
    return f"{name} IS NULL" if value is None else f"{name} = {bound.add(value)}"


def _any_of(name: str, choices: tuple[IndexRange, ...], bound: Bound) -> list[str]:
    if len(choices) == 1:
        return _within(name, choices[0], bound)
    return ["(" + " OR ".join(" AND ".join(_within(name, choice, bound)) for choice in choices) + ")"]


def _within(name: str, index_range: IndexRange, bound: Bound) -> list[str]:
    if index_range.unbounded:
        return []
    if index_range.null:
        return [f"{name} IS NULL"]
    conditions = []
    if index_range.low is not None:
        conditions.append(f"{name} {'>' if index_range.low_open else '>='} {bound.add(index_range.low)}")
    if index_range.high is not None:
        conditions.append(f"{name} {'<' if index_range.high_open else '<='} {bound.add(index_range.high)}")
    return conditions or ([f"{name} IS NOT NULL"] if index_range.present else [])


def _branches(plan: QueryPlan) -> Iterator[Branch]:
    """Yield every combination of `in` values and ranges; with a cursor, only what lies after it."""
    rest = tuple((term.column, _ranges(plan, term.column)) for term in plan.order[1:])
    for combination in itertools.product(*(values for _, values in plan.equals)):
        equals = tuple((column, value) for (column, _), value in zip(plan.equals, combination, strict=True))
        if not plan.order:
            yield Branch(equals, key=plan.after[1] if plan.after else None)
            continue
        for index_range in _ranges(plan, plan.order[0].column):
            if plan.after is None:
                yield Branch(equals, (plan.order[0].column, index_range), rest)
            else:
                yield from _after_cursor(plan, equals, index_range=index_range, rest=rest)


def _after_cursor(
    plan: QueryPlan, equals: Equals, *, index_range: IndexRange, rest: Rest
) -> Iterator[Branch]:
    """A row lies after the cursor when it ties on some leading terms and passes it on the next."""
    assert plan.after is not None
    values, key = plan.after
    terms = plan.order
    ties = tuple((term.column, value) for term, value in zip(terms, values, strict=True))
    if _contains(index_range, terms[0].column, values[0]):
        yield Branch((*equals, *ties), key=key)
        for n in range(len(terms) - 1, 0, -1):
            column, choices = rest[n - 1]
            for choice in choices:
                for passed in _past(choice, terms[n], values[n]):
                    yield Branch((*equals, *ties[:n]), (column, passed), rest[n:])
    for passed in _past(index_range, terms[0], values[0]):
        yield Branch(equals, (terms[0].column, passed), rest)


def _ranges(plan: QueryPlan, column: Column) -> tuple[IndexRange, ...]:
    """Return what the filters leave of an order column, as ranges of stored values."""
    bounds = [f for f in plan.bounds if f.field == column.path]
    if bounds:
        return tuple(_index_range(column, interval) for interval in intervals_of(bounds))
    return (IndexRange(low=NULL) if column.kind == "open" else IndexRange(unbounded=True),)


def _index_range(column: Column, interval: Interval) -> IndexRange:
    """Return an interval of values as a range of stored ones; null is in none of them."""
    low, high = interval.low, interval.high
    if column.kind != "open":
        return IndexRange(low, interval.low_open, high, interval.high_open, present=True)
    brackets = [everything()] if interval.any_type else [bracket(v) for v in (low, high) if v is not None]
    floor, ceiling = max(b[0] for b in brackets), min(b[1] for b in brackets)
    low_stored, low_open = (ordered(low), interval.low_open) if low is not None else (floor, False)
    high_stored, high_open = (ordered(high), interval.high_open) if high is not None else (ceiling, True)
    if low_stored < floor:
        low_stored, low_open = floor, False
    if high_stored > ceiling:
        high_stored, high_open = ceiling, True
    return IndexRange(low_stored, low_open, high_stored, high_open)


def _rank(column: Column, stored: Any) -> Any:
    """Return something by which two stored values of one column compare."""
    return stored if column.kind == "open" or stored is None else ordered(stored)


def _contains(index_range: IndexRange, column: Column, value: Any) -> bool:
    """Whether a cursor's value lies in the range, so that ties with it do too."""
    if index_range.unbounded:
        return True
    rank = ordered(value)
    low, high = _rank(column, index_range.low), _rank(column, index_range.high)
    above = low is None or rank > low or (rank == low and not index_range.low_open)
    below = high is None or rank < high or (rank == high and not index_range.high_open)
    return above and below and (value is not None or column.kind == "open")


def _past(index_range: IndexRange, term: OrderTerm, value: Any) -> Iterator[IndexRange]:
    """Yield the part of a range that comes after a value in the term's direction."""
    stored = ordered(value) if term.column.kind == "open" else value
    if term.descending:
        yield from _below(index_range, term.column, stored)
    elif stored is None:
        yield IndexRange(present=True) if index_range.unbounded else index_range
    else:
        yield from _above(index_range, term.column, stored)


def _above(index_range: IndexRange, column: Column, stored: Any) -> Iterator[IndexRange]:
    rank, low, high = (_rank(column, v) for v in (stored, index_range.low, index_range.high))
    if high is not None and rank >= high:
        return
    if low is not None and low > rank:
        yield index_range
    else:
        yield IndexRange(stored, True, index_range.high, index_range.high_open)


def _below(index_range: IndexRange, column: Column, stored: Any) -> Iterator[IndexRange]:
    if stored is None:
        return
    rank, low, high = (_rank(column, v) for v in (stored, index_range.low, index_range.high))
    if low is None or rank > low:
        higher = high is not None and high < rank
        yield index_range if higher else IndexRange(index_range.low, index_range.low_open, stored, True)
    if index_range.unbounded and column.nullable:
        yield IndexRange(null=True)
