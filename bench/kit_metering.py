"""Metering: facts of 50 tenants in batches of 100, of which one in twenty was recorded before.

Ours keeps a ledger event of each fact and exact sums by tenant, metric and day, in one commit. One peer does
that with SQLAlchemy's bulk statements, another with its ORM (`orm_metering`); the bare loop with one
statement for the ledger and one for the sums, on the smallest tables that can hold them. The floor is the
same loop on our tables with our indexes and documents, without a check, a version or a rule, on SQLite in
another thread than the event loop's. All of them make each batch durable before the next begins.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import count

import asyncpg
import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import create_async_engine

from bench import orm_metering, raw_postgres, raw_sqlite
from bench.measure import Goal, Place, Workload, beside
from holdfast.app import open_store
from holdfast.kit.metering import METER_MODELS, Fact, record_facts

BATCH, TENANTS, REPEATED_EVERY = 100, 50, 20
AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = "2026-11-15"
Batch = Sequence[tuple[str, str]]
Record = Callable[[Batch], Awaitable[None]]
_NUMBERS = count()


def new_batches(number: int) -> list[Batch]:
    """Pairs of tenant and fact; every twentieth is one of an earlier batch, or of the same."""
    run = next(_NUMBERS)
    facts = [(f"tenant-{n % TENANTS}", f"fact-{run}-{n}") for n in range(number * BATCH)]
    for n in range(REPEATED_EVERY, len(facts), REPEATED_EVERY):
        facts[n] = facts[max(0, n - BATCH)]
    return [facts[n : n + BATCH] for n in range(0, len(facts), BATCH)]


async def through_holdfast(url: str) -> AsyncIterator[Record]:
    store = await open_store(url, METER_MODELS.all)
    await store.migrate()
    everyone = store.privileged()

    async def record(batch: Batch) -> None:
        facts = [Fact(tenant_id=tenant, name=name, metrics={"calls": 1}, at=AT) for tenant, name in batch]
        await record_facts(everyone, facts)

    yield record
    await store.close()


TABLES = sa.MetaData()
LEDGER = sa.Table(
    "ledger", TABLES,
    sa.Column("tenant", sa.Text, primary_key=True), sa.Column("fact", sa.Text, primary_key=True),
    sa.Column("at", sa.Text), sa.Column("metric", sa.Text), sa.Column("value", sa.Integer),
)  # fmt: skip
SUMS = sa.Table(
    "sums", TABLES,
    sa.Column("tenant", sa.Text, primary_key=True), sa.Column("metric", sa.Text, primary_key=True),
    sa.Column("day", sa.Text, primary_key=True), sa.Column("value", sa.Integer),
)  # fmt: skip


async def through_sqlalchemy(url: str) -> AsyncIterator[Record]:
    on_sqlite = url.startswith("sqlite")
    path = url.partition("?")[0].removeprefix("sqlite:///")
    engine = create_async_engine(
        f"sqlite+aiosqlite:///{path}" if on_sqlite else url.replace("postgresql", "postgresql+asyncpg", 1)
    )
    insert = sqlite.insert if on_sqlite else postgresql.insert
    keep = insert(LEDGER).on_conflict_do_nothing().returning(LEDGER.c.tenant)
    add = insert(SUMS)
    moved = SUMS.c.value + add.excluded.value
    add = add.on_conflict_do_update(
        index_elements=[SUMS.c.tenant, SUMS.c.metric, SUMS.c.day], set_={"value": moved}
    )
    async with engine.begin() as link:
        if on_sqlite:
            await link.exec_driver_sql("PRAGMA synchronous = FULL")
        await link.run_sync(TABLES.create_all)

    async def record(batch: Batch) -> None:
        rows = [
            {"tenant": tenant, "fact": name, "at": AT.isoformat(), "metric": "calls", "value": 1}
            for tenant, name in dict.fromkeys(batch)
        ]
        async with engine.begin() as link:
            new = Counter((await link.execute(keep, rows)).scalars())
            sums = [{"tenant": one, "metric": "calls", "day": DAY, "value": n} for one, n in new.items()]
            await link.execute(add, sums)

    yield record
    await engine.dispose()


async def through_orm(url: str) -> AsyncIterator[Record]:
    async with asynccontextmanager(orm_metering.open_sessions)(url) as sessions:

        async def record(batch: Batch) -> None:
            await orm_metering.record(sessions, batch, at=AT)

        yield record


async def bare_sqlite(url: str) -> AsyncIterator[Record]:
    link = raw_sqlite.connect(url, cached=False)
    link.execute(
        "CREATE TABLE ledger (tenant TEXT, fact TEXT, at TEXT, metric TEXT, value INTEGER,"
        " PRIMARY KEY (tenant, fact)) WITHOUT ROWID; CREATE TABLE sums (tenant TEXT, metric TEXT, day TEXT,"
        " value INTEGER, PRIMARY KEY (tenant, metric, day)) WITHOUT ROWID"
    )
    keep = (
        "INSERT OR IGNORE INTO ledger SELECT value ->> 0, value ->> 1, ?, 'calls', 1 FROM json_each(?)"
        " RETURNING tenant"
    )
    add = (
        "INSERT INTO sums SELECT key, 'calls', ?, value FROM json_each(?) WHERE true"
        " ON CONFLICT DO UPDATE SET value = value + excluded.value"
    )
    at = AT.isoformat()

    async def record(batch: Batch) -> None:
        link.execute("BEGIN IMMEDIATE")
        new = Counter(row[0] for row in link.execute(keep, (at, msgspec.json.encode(batch).decode())))
        link.execute(add, (DAY, msgspec.json.encode(new).decode()))
        link.execute("COMMIT")

    yield record
    link.close()


async def bare_postgres(url: str) -> AsyncIterator[Record]:
    link = await asyncpg.connect(url)
    await link.execute(
        "CREATE TABLE ledger (tenant text, fact text, at timestamptz, metric text, value bigint,"
        " PRIMARY KEY (tenant, fact)); CREATE TABLE sums (tenant text, metric text, day text,"
        " value bigint, PRIMARY KEY (tenant, metric, day))"
    )
    both = await link.prepare(
        "WITH new AS (INSERT INTO ledger SELECT t, f, $3, 'calls', 1 FROM unnest($1::text[], $2::text[])"
        " AS given(t, f) ON CONFLICT DO NOTHING RETURNING tenant) INSERT INTO sums SELECT tenant, 'calls',"
        " $4, count(*) FROM new GROUP BY tenant ON CONFLICT (tenant, metric, day)"
        " DO UPDATE SET value = sums.value + excluded.value"
    )

    async def record(batch: Batch) -> None:
        await both.fetch([tenant for tenant, _ in batch], [name for _, name in batch], AT, DAY)

    yield record
    await link.close()


def bare(url: str) -> AsyncIterator[Record]:
    return bare_sqlite(url) if url.startswith("sqlite") else bare_postgres(url)


_ADD = "ON CONFLICT (_key) DO UPDATE SET value = t.value + excluded.value, _patch = excluded._patch"
_EVENT_NAMES = '_key, _version, "tenantId", at, _body'
_SUM_NAMES = '_key, _version, "tenantId", metric, day, value, month, _body, _patch'


def _body(tenant: str, name: str) -> str:
    text = {"id": f"{tenant}_{name}", "tenantId": tenant, "fact": name, "at": AT, "month": DAY[:7]}
    return msgspec.json.encode(text | {"kind": "", "metrics": {"calls": 1}, "metadata": None}).decode()


def _sum_body(tenant: str, count: int) -> str:
    text = {"id": f"{tenant}_calls_{DAY}_0", "tenantId": tenant, "metric": "calls", "day": DAY}
    return msgspec.json.encode(text | {"month": DAY[:7], "shard": 0, "value": count}).decode()


async def floor_sqlite(url: str) -> AsyncIterator[Record]:
    link = raw_sqlite.connect(url, METER_MODELS.all)
    group = raw_sqlite.GroupCommit(link)
    keep = (
        f"INSERT OR IGNORE INTO holdfast_usage_events ({_EVENT_NAMES}) SELECT value ->> 0, 1, value ->> 1, ?,"
        ' value ->> 2 FROM json_each(?) RETURNING "tenantId"'
    )
    add = (
        f"INSERT INTO holdfast_usage_sums AS t ({_SUM_NAMES}) SELECT value ->> 0, 1, value ->> 1, 'calls', ?,"
        f" value ->> 2, ?, value ->> 3, value ->> 3 FROM json_each(?) WHERE true {_ADD}"
    )
    encode, at_us = msgspec.json.encode, round(AT.timestamp() * 1e6)

    def write(rows: str) -> None:
        new = Counter(row[0] for row in link.execute(keep, (at_us, rows)))
        sums = [(f"{one}_calls_{DAY}_0", one, count, _sum_body(one, count)) for one, count in new.items()]
        link.execute(add, (DAY, DAY[:7], encode(sums).decode()))

    async def record(batch: Batch) -> None:
        rows = [(f"{tenant}_{name}", tenant, _body(tenant, name)) for tenant, name in batch]
        await group.do(partial(write, encode(rows).decode()))

    yield record
    group.close()


async def floor_postgres(url: str) -> AsyncIterator[Record]:
    link = await raw_postgres.connect(url, METER_MODELS.all)
    both = await link.prepare(
        f"WITH new AS (INSERT INTO holdfast_usage_events ({_EVENT_NAMES}) SELECT k, 1, t, $4, b"
        " FROM unnest($1::text[], $2::text[], $3::json[]) AS given(k, t, b) ON CONFLICT DO NOTHING"
        f' RETURNING "tenantId") INSERT INTO holdfast_usage_sums AS t ({_SUM_NAMES})'
        """ SELECT "tenantId" || '_calls_' || $5, 1, "tenantId", 'calls', $5, count(*), $6, $7::json,"""
        f' $7::json FROM new GROUP BY "tenantId" {_ADD}'
    )

    async def record(batch: Batch) -> None:
        keys, bodies = [f"{tenant}_{name}" for tenant, name in batch], [_body(*one) for one in batch]
        tenants = [tenant for tenant, _ in batch]
        await both.fetch(keys, tenants, bodies, AT, DAY, DAY[:7], _sum_body("tenant-0", 1))

    yield record
    await link.close()


def floor(url: str) -> AsyncIterator[Record]:
    return floor_sqlite(url) if url.startswith("sqlite") else floor_postgres(url)


async def facts_per_s(record: Record, place: Place) -> float:
    batches = place.scale(60, 20)
    given = new_batches(batches)
    started = time.perf_counter()
    for batch in given:
        await record(batch)
    return batches * BATCH / (time.perf_counter() - started)


NAME = "metering, batches of 100 facts of 50 tenants"
ENGINES = ("sqlite full", "postgres")
WORKLOADS = [
    # Not even the bare loop has five times the peer's rate.
    Workload(
        name=NAME, engines=ENGINES, unit="facts/s", goal=Goal(5.0), other_name="SQLAlchemy bulk",
        floor_name="a bare loop", floor_goal=None,
        open=beside(through_holdfast, through_sqlalchemy, bare, figure=facts_per_s),
    ),
    Workload(
        name=NAME, engines=ENGINES, unit="facts/s", goal=Goal(5.0), other_name="SQLAlchemy ORM, bulk",
        floor_name="a bare loop", floor_goal=None,
        open=beside(through_holdfast, through_orm, bare, figure=facts_per_s),
    ),
    Workload(
        name=NAME, engines=ENGINES, unit="facts/s", goal=Goal(0.4), other_name="a bare loop",
        floor_name="the driver on our tables", floor_goal=Goal(0.5),
        open=beside(through_holdfast, bare, floor, figure=facts_per_s),
    ),
]  # fmt: skip
