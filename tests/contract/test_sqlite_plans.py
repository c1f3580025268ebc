"""SQLite scans the declared index and nothing else, for every index and every query it serves; and a cached
statement is the one that the query would get without the cache, on both SQL engines.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import apsw
import msgspec
import pytest

from holdfast.app import open_store
from holdfast.clock import to_us
from holdfast.errors import UnindexedQueryError
from holdfast.model.columns import Column
from holdfast.model.document import schema_of
from holdfast.model.index import IndexField, ResolvedIndex
from holdfast.model.schema import Schema
from holdfast.store import Catalog, Query, create
from holdfast.store.contract.models import ALL, NOON, Note, QueuedJob
from holdfast.store.plan import Aggregate, QueryPlan, resolve
from holdfast.store.port import ClaimRequest
from holdfast.store.postgres.statement import PostgresTable
from holdfast.store.sql import index_scan
from holdfast.store.sql.select_cache import SelectCache
from holdfast.store.sql.tables import index_name
from holdfast.store.sqlite import ddl
from holdfast.store.sqlite.claims import claim
from holdfast.store.sqlite.dialect import DIALECT
from holdfast.store.sqlite.statements import SqliteTable
from holdfast.store.sqlite.write_transaction import WriteTransaction, create_meta

CATALOG = Catalog(ALL)
SAMPLES: dict[str, tuple[Any, Any, Any]] = {
    "integer": (1, 3, 5), "number": (1.5, 2.5, 3.5), "boolean": (False, True, True), "text": ("a", "b", "c"),
    "time": (NOON, NOON + timedelta(days=1), NOON + timedelta(days=2)), "bytes": (b"a", b"b", b"c"),
    "open": (1, 2, 3),
}  # fmt: skip
DECLARED = [
    pytest.param(schema, index, id=f"{schema.name}-{index.name}")
    for schema in CATALOG.schemas
    for index in schema.indexes
]


@pytest.fixture(scope="module")
def connection() -> Iterator[apsw.Connection]:
    found = apsw.Connection(":memory:")
    create_meta(found)
    for statement in ddl(CATALOG):
        found.execute(statement)
    yield found
    found.close()


def questions(schema: Schema[Any], index: ResolvedIndex) -> Iterator[Query[Any]]:
    """Yield every query of an index: how many fields are fixed, and the filters on the next one."""
    first = next((n + 1 for n, f in enumerate(index.fields) if f.member), 0)
    for fixed in range(first, len(index.fields) + 1):
        head, tail = index.fields[:fixed], index.fields[fixed:]
        query = _fixed(_placed(schema, index), head)
        for turned in (False, True) if tail else (False,):
            yield from _ordered(query, head, tail, turned=turned)


def _placed(schema: Schema[Any], index: ResolvedIndex) -> Query[Any]:
    query = Query(schema.cls)
    if not schema.path.nested:
        return query
    parents = tuple("p" for _ in schema.path.parameters[:-1])
    return query.under(*parents) if index.across == "nothing" else query.across_parents()


def _fixed(query: Query[Any], head: tuple[IndexField, ...]) -> Query[Any]:
    for field in head:
        if field.member:
            query = query.where(field.column.path, "array-contains", "a")
        else:
            query = query.where(field.column.path, "==", SAMPLES[field.column.kind][0])
    return query


def _ordered(
    query: Query[Any], head: tuple[IndexField, ...], tail: tuple[IndexField, ...], *, turned: bool
) -> Iterator[Query[Any]]:
    ordered = query.order_by(*(("-" if f.descending != turned else "") + f.column.path for f in tail))
    yield ordered
    plain = [n for n, f in enumerate(ordered.filters) if f.operator == "=="]
    if plain:
        last = ordered.filters[plain[-1]]
        values = SAMPLES[head[plain[-1]].column.kind]
        rest = tuple(f for f in ordered.filters if f is not last)
        yield msgspec.structs.replace(ordered, filters=rest).where(last.field, "in", values)
    if tail:
        low, middle, high = SAMPLES[tail[0].column.kind]
        path = tail[0].column.path
        yield ordered.where(path, ">=", low)
        yield ordered.where(path, ">", low).where(path, "<=", high)
        yield ordered.where(path, "!=", low)
        yield ordered.where(path, "not-in", [low] if middle == high else [low, high])


def planned(
    schema: Schema[Any], index: ResolvedIndex, aggregate: Aggregate | None = None
) -> Iterator[QueryPlan]:
    tenant = None
    if schema.tenant is not None and index.across != "tenants":
        tenant = "p" if schema.tenant_is_parent else "t"
    for query in questions(schema, index):
        if index.sparse is not None and not _excludes_empty(query, index.sparse):
            with pytest.raises(UnindexedQueryError):
                resolve(query, tenant=tenant, privileged=tenant is None, aggregate=aggregate)
            continue
        yield resolve(query, tenant=tenant, privileged=tenant is None, aggregate=aggregate)


def _excludes_empty(query: Query[Any], column: Column) -> bool:
    own = [one.operator for one in query.filters if one.field == column.path]
    return any(operator in ("==", "in") or column.kind != "text" for operator in own)


def continued(plan: QueryPlan) -> QueryPlan:
    """Return the same query, continued after some page."""
    values = tuple(SAMPLES[term.column.kind][1] for term in plan.order)
    return msgspec.structs.replace(
        plan, after=(values, "k" if not plan.parent_ids else f"{plan.parent}\x01k")
    )


def short_pages(schema: Schema[Any]) -> list[QueryPlan]:
    """Return the first page and a later one of every query, of five documents each."""
    plans = [plan for index in schema.indexes for plan in planned(schema, index)]
    return [msgspec.structs.replace(one, limit=5) for plan in plans for one in (plan, continued(plan))]


def explained(connection: apsw.Connection, sql: str, values: list[Any]) -> list[str]:
    return [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)]


def assert_walked(lines: list[str], plan: QueryPlan, sql: str) -> None:
    table = CATALOG.table(plan.schema)
    primary = f"sqlite_autoindex_{table}_1"
    # By id alone, any index in the order of ids will do.
    name = "" if plan.index is None else index_name(table, plan.index, DIALECT)
    touched = [line for line in lines if re.match(r"(SEARCH|SCAN) [ti]\b", line)]
    assert any(f"INDEX {name}" in line for line in touched), lines
    for line in touched:
        by_key = line.startswith("SEARCH t") and f"INDEX {primary} (_key=?)" in line
        assert by_key or f"INDEX {name}" in line, lines
        # With nothing to look for, the index is read from its end, in order, until the page is full.
        assert line.startswith("SEARCH") or _unbounded(plan), lines
    sorts = sum("TEMP B-TREE" in line for line in lines)
    assert sorts <= (1 if " UNION ALL " in sql else 0), lines


def _unbounded(plan: QueryPlan) -> bool:
    scoped = plan.tenant is not None or plan.parent is not None
    return not (scoped or plan.equals or plan.member)


@pytest.mark.parametrize(("schema", "index"), DECLARED)
def test_a_question_walks_its_index_and_nothing_is_scanned(
    connection: apsw.Connection, schema: Schema[Any], index: ResolvedIndex
) -> None:
    asked = 0
    for plan in planned(schema, index):
        for page in (plan, continued(plan)):
            mapping = SqliteTable(schema, CATALOG.table(schema))
            sql, values = index_scan.select(page, mapping.table, dialect=DIALECT, columns=mapping.selected)
            assert_walked(explained(connection, sql, values), page, sql)
            asked += 1
    assert asked


@pytest.mark.parametrize(("schema", "index"), DECLARED)
@pytest.mark.parametrize("table", [SqliteTable, PostgresTable])
def test_a_repeated_query_gets_the_statement_and_values_that_it_would_get_alone(
    schema: Schema[Any], index: ResolvedIndex, table: type[SqliteTable | PostgresTable]
) -> None:
    mapping = table(schema, CATALOG.table(schema))
    cache = SelectCache(mapping)
    for first in planned(schema, index):
        for plan in (first, with_other_values(first), with_null(first), continued(first)):
            alone = index_scan.select(plan, mapping.table, dialect=mapping.dialect, columns=mapping.loaded)
            assert cache.select(plan) == alone


def with_null(plan: QueryPlan) -> QueryPlan:
    equals = tuple((column, (None,) if column.nullable else values) for column, values in plan.equals)
    return msgspec.structs.replace(plan, equals=equals)


def with_other_values(plan: QueryPlan) -> QueryPlan:
    """Return a plan of the same shape, as the same query with other values has it."""
    equals = tuple(
        (column, (SAMPLES[column.kind][1],) if len(values) == 1 else values) for column, values in plan.equals
    )
    limit = plan.limit if plan.tenant else 7
    return msgspec.structs.replace(plan, equals=equals, tenant=plan.tenant and "other", limit=limit)


@pytest.mark.parametrize(("schema", "index"), DECLARED)
def test_a_count_or_sum_walks_its_index_without_sorting(
    connection: apsw.Connection, schema: Schema[Any], index: ResolvedIndex
) -> None:
    plans = list(planned(schema, index, Aggregate("count")))
    last = index.fields[-1].column if index.fields else None
    if last is not None and last.kind in ("integer", "number"):
        plans += planned(schema, index, Aggregate("sum", last.path))
    for plan in plans:
        sql, values = index_scan.aggregate(plan, CATALOG.table(schema), dialect=DIALECT)
        lines = explained(connection, sql, values)
        assert_walked(lines, plan, sql)
        assert not any("TEMP B-TREE" in line for line in lines), lines


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("tenant", [None, "t"])
def test_a_claim_searches_its_partial_indexes(
    connection: apsw.Connection, lanes: bool, tenant: str | None
) -> None:
    schema = schema_of(QueuedJob)
    mapping = SqliteTable(schema, CATALOG.table(schema))
    job = schema.prepare(QueuedJob(id="j", tenant_id="t", due=NOON, lane="l"))
    ran: list[tuple[str, Any]] = []

    def note(_: apsw.Cursor, sql: str, values: Any) -> bool:
        ran.append((sql, values))
        return True

    connection.execute("BEGIN")
    connection.execute(mapping.insert_sql, mapping.inserted(job, version=1))
    transaction = WriteTransaction(connection, {schema: mapping})
    transaction.reserve_versions()
    connection.exec_trace = note
    taken = claim(transaction, ClaimRequest(
        schema=schema, now_us=to_us(NOON), lease_us=1, limit=5, owner="w", tenant=tenant,
        per_lane=2 if lanes else None,
    ))  # fmt: skip
    connection.exec_trace = None
    connection.execute("ROLLBACK")
    assert [s.doc.id for s in taken] == ["j"]
    for sql, values in ran:
        lines = [line for line in explained(connection, sql, values) if line.startswith(("SEARCH", "SCAN"))]
        assert all(line.startswith("SEARCH jobs USING ") or "json_each" in line for line in lines), lines
    used = " ".join(itertools.chain(*(explained(connection, sql, values) for sql, values in ran)))
    assert f"INDEX jobs__due{'_by_lane' if lanes else ' '}" in used


async def test_a_page_costs_the_same_among_ten_times_as_many_documents(sqlite_url: str) -> None:
    schema = schema_of(Note)
    mapping = SqliteTable(schema, CATALOG.table(schema))
    statements = [
        index_scan.select(page, mapping.table, dialect=DIALECT, columns=mapping.selected)
        for page in short_pages(schema)
    ]
    store = await open_store(sqlite_url, [Note])
    await store.migrate()
    connection = apsw.Connection(sqlite_url.removeprefix("sqlite:///"))
    costs = []
    for first, beyond in ((0, 200), (200, 2_000)):
        await store.settle([[create(_note(n))] for n in range(first, beyond)])
        costs.append([_steps(connection, sql, values) for sql, values in statements])
    connection.close()
    await store.close()
    for (sql, _), few, many in zip(statements, *costs, strict=True):
        assert many <= few * 1.5 + 200, sql


def _note(n: int) -> Note:
    return Note(
        id=f"{n:05}", text="abc"[n % 3], whole=n % 7, part=n % 5 + 0.5, flag=n % 2 == 0, at=NOON,
        blob=bytes([97 + n % 3]), mixed=n % 4 if n % 3 else "t", moment=n % 3 if n % 2 else NOON,
        labels=["a", "b"], scores=["a", n % 3],
    )  # fmt: skip


def _steps(connection: apsw.Connection, sql: str, values: list[Any]) -> int:
    """How many instructions SQLite's own machine ran for a statement."""
    seen: list[int] = []
    connection.trace_v2(
        apsw.SQLITE_TRACE_PROFILE,
        lambda event: seen.append(event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]),
    )
    connection.execute(sql, values).fetchall()
    connection.trace_v2(0, None)
    return sum(seen)
