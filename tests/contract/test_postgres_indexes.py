"""PostgreSQL scans the declared index and nothing else, for every index and every query it serves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
import pytest

from holdfast.clock import to_us
from holdfast.model.document import Document, schema_of
from holdfast.model.schema import Schema
from holdfast.store import Store, create, postgres
from holdfast.store.contract.models import NOON, Chore, Note, QueuedJob
from holdfast.store.plan import Aggregate, QueryPlan
from holdfast.store.port import ClaimRequest
from holdfast.store.postgres.address import parse_url
from holdfast.store.postgres.claims import claim_statement
from holdfast.store.postgres.dialect import DIALECT
from holdfast.store.postgres.pool import ConnectionPool, PgConnection
from holdfast.store.postgres.statement import PostgresTable
from holdfast.store.sql import index_scan
from holdfast.store.sql.claims import next_due_statement
from holdfast.store.sql.tables import index_name
from tests.contract.test_sqlite_plans import CATALOG, DECLARED, continued, planned, short_pages

DECLARING = [pytest.param(s, id=s.name) for s in CATALOG.schemas if s.indexes]


@pytest.fixture
async def connection(postgres_url: str) -> AsyncIterator[PgConnection]:
    """A connection as the engine opens them, to a database as the engine migrates it."""
    store = Store(await postgres.connect(postgres_url, CATALOG))
    await store.migrate()
    await store.close()
    links = ConnectionPool(parse_url(postgres_url))
    found = await links.open()
    yield found
    await found.close()


async def explained(connection: PgConnection, sql: str, values: list[Any]) -> dict[str, Any]:
    text = await connection.fetchval(f"EXPLAIN (FORMAT JSON) {sql}", *values)
    (plan,) = msgspec.json.decode(text)
    root: dict[str, Any] = plan["Plan"]
    return root


def nodes(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield root
    for child in root.get("Plans", ()):
        yield from nodes(child)


def assert_walked(root: dict[str, Any], plan: QueryPlan, sql: str) -> None:
    table = CATALOG.table(plan.schema)
    primary = f"{table}_pkey"
    # By id alone there is no index but the primary key.
    name = primary if plan.index is None else index_name(table, plan.index, DIALECT)
    scans = [node for node in nodes(root) if "Scan" in node["Node Type"]]
    read = [node for node in scans if node["Node Type"] != "Subquery Scan"]
    assert any(node.get("Index Name") == name for node in read), root
    for node in read:
        assert node["Node Type"] in ("Index Scan", "Index Only Scan"), root
        by_key = node["Index Name"] == primary and "_key = " in node.get("Index Cond", "")
        assert by_key or node["Index Name"] == name, root
    sorts = sum(node["Node Type"] == "Sort" for node in nodes(root))
    assert sorts <= (1 if " UNION ALL " in sql else 0), root


@pytest.mark.parametrize("schema", DECLARING)
async def test_a_question_walks_its_index_and_nothing_is_scanned_or_sorted(
    connection: PgConnection, schema: Schema[Any]
) -> None:
    mapping = PostgresTable(schema, CATALOG.table(schema))
    for index in schema.indexes:
        plans = list(planned(schema, index))
        assert plans
        for page in [one for plan in plans for one in (plan, continued(plan))]:
            sql, values = index_scan.select(page, mapping.table, dialect=DIALECT, columns=mapping.selected)
            assert_walked(await explained(connection, sql, values), page, sql)


@pytest.mark.parametrize("schema", DECLARING)
async def test_a_count_or_sum_walks_its_index_without_sorting(
    connection: PgConnection, schema: Schema[Any]
) -> None:
    for index in schema.indexes:
        plans = list(planned(schema, index, Aggregate("count")))
        last = index.fields[-1].column if index.fields else None
        if last is not None and last.kind in ("integer", "number"):
            plans += planned(schema, index, Aggregate("sum", last.path))
        for plan in plans:
            sql, values = index_scan.aggregate(plan, CATALOG.table(schema), dialect=DIALECT)
            root = await explained(connection, sql, values)
            assert_walked(root, plan, sql)
            assert not any("Sort" in node["Node Type"] for node in nodes(root)), root


def test_every_declared_index_was_asked() -> None:
    assert {s.values[0] for s in DECLARING} == {p.values[0] for p in DECLARED}


LANES: list[dict[str, Any]] = [
    {}, {"per_lane": 2}, {"per_lane": 2, "after_lane": "m"}, {"only_lanes": frozenset("ab")},
    {"lane_prefix": "ab"}, {"skip_lanes": frozenset("a")},
]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "lanes", "tenant"),
    [(Chore, {}, None), *((QueuedJob, one, t) for one in LANES for t in (None, "t"))],
)
async def test_a_claim_searches_its_partial_indexes(
    connection: PgConnection, cls: type[Document], lanes: dict[str, Any], tenant: str | None
) -> None:
    schema = schema_of(cls)
    request = ClaimRequest(
        schema=schema, now_us=to_us(NOON), lease_us=1, limit=5, owner="w", tenant=tenant, **lanes
    )
    table = CATALOG.table(schema)
    sql, values = claim_statement(PostgresTable(schema, table), request)
    root = await explained(connection, sql, values)
    allowed = {f"{table}__due", f"{table}__due_by_lane", f"{table}_pkey"}
    read = [
        node for node in nodes(root) if node.get("Relation Name") == table and "Scan" in node["Node Type"]
    ]
    assert {node.get("Index Name") for node in read} <= allowed, root
    wanted = f"{table}__due_by_lane" if lanes else f"{table}__due"
    assert any(node["Index Name"] == wanted for node in read), root


@pytest.mark.parametrize("tenant", [None, "t"])
async def test_asking_when_something_is_due_searches_the_partial_index(
    connection: PgConnection, tenant: str | None
) -> None:
    sql, values = next_due_statement(PostgresTable(schema_of(QueuedJob), "jobs"), tenant)
    read = [node for node in nodes(await explained(connection, sql, values)) if "Relation Name" in node]
    assert [node.get("Index Name") for node in read] == ["jobs__due"]


async def test_a_page_reads_no_more_among_ten_times_as_many_documents(
    postgres_url: str, connection: PgConnection
) -> None:
    schema = schema_of(Note)
    mapping = PostgresTable(schema, CATALOG.table(schema))
    statements = [
        index_scan.select(page, mapping.table, dialect=DIALECT, columns=mapping.selected)
        for page in short_pages(schema)
    ]
    store = Store(await postgres.connect(postgres_url, CATALOG))
    costs = []
    for first, beyond in ((0, 200), (200, 2_000)):
        await store.settle([[create(_note(n))] for n in range(first, beyond)])
        await connection.execute("VACUUM ANALYZE")
        costs.append([await _rows_read(connection, sql, values) for sql, values in statements])
    await store.close()
    for (sql, _), few, many in zip(statements, *costs, strict=True):
        assert many <= few * 1.5 + 20, sql


@pytest.mark.parametrize("lanes", [{"skip_lanes": frozenset(["crowd"])}, {"per_lane": 1}])
async def test_a_crowded_lane_is_stepped_over_however_many_wait_in_it(
    connection: PgConnection, lanes: dict[str, Any]
) -> None:
    await connection.execute(
        "INSERT INTO jobs (_key, _version, tenant_id, status, due, fence, lane, _body)"
        " SELECT l || n, 0, 't', 'waiting', $1::timestamptz - interval '1 hour', 0, l, '{}'"
        " FROM (SELECT 'crowd' AS l, n FROM generate_series(1, 20000) AS n"
        "       UNION ALL SELECT 'lane' || n, n FROM generate_series(1, 20) AS n) AS rows",
        NOON,
    )
    await connection.execute("VACUUM ANALYZE jobs")
    schema = schema_of(QueuedJob)
    request = ClaimRequest(
        schema=schema, now_us=to_us(NOON), lease_us=1, limit=20, owner="w", tenant=None, **lanes
    )
    read = await _rows_read(connection, *claim_statement(PostgresTable(schema, "jobs"), request))
    assert 20 <= read < 200
    taken = await connection.fetch("SELECT lane FROM jobs WHERE fence = 1")
    assert len(taken) == 20
    assert sum(row["lane"] == "crowd" for row in taken) <= 1


def _note(n: int) -> Note:
    return Note(
        id=f"{n:05}", text="abc"[n % 3], whole=n % 7, part=n % 5 + 0.5, flag=n % 2 == 0, blob=b"abc"[n % 3 :],
        at=NOON + timedelta(days=n % 3), mixed=n % 4 if n % 3 else "t", moment=n % 3 if n % 2 else NOON,
        labels=["a", "b"], scores=["a", n % 3], maybe=n % 5,
    )  # fmt: skip


async def _rows_read(connection: PgConnection, sql: str, values: list[Any]) -> int:
    """How many rows the scans of a statement gave or threw away."""
    text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON, TIMING OFF) {sql}", *values)
    (plan,) = msgspec.json.decode(text)
    return sum(
        int((node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"])
        for node in nodes(plan["Plan"])
        if "Index" in node["Node Type"] or node["Node Type"] == "Seq Scan"
    )


async def test_the_settings_that_hold_the_planner_are_the_links_own(
    connection: PgConnection, postgres_url: str
) -> None:
    plain = await asyncpg.connect(postgres_url)
    assert await plain.fetchval("SHOW enable_seqscan") == "on"
    assert await connection.fetchval("SHOW enable_seqscan") == "off"
    await plain.close()
