"""Metering: facts of 50 tenants in batches of 100, of which one in twenty was recorded before.

Ours keeps a ledger event of each fact and exact sums by tenant, metric and day, in one commit. One peer does
that with SQLAlchemy's Core statements, two with its ORM (`orm_metering`); the bare loop with one statement
for the ledger and one for the sums, on the smallest tables that can hold them. The floor (`floor_metering`)
keeps our promises on our tables by hand. All of them make each batch durable before the next begins, and
after each run the ledger and the sums of all of them are compared with the facts.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from itertools import chain, count
from typing import Any, NamedTuple

import apsw
import asyncpg
import msgspec
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import create_async_engine

from bench import floor_metering, orm_metering, raw_sqlite
from bench.measure import Goal, Place, Workload, beside
from holdfast.app import open_store
from holdfast.kit.metering import METER_MODELS, Fact, record_facts

BATCH, TENANTS, REPEATED_EVERY = 100, 50, 20
AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = "2026-11-15"
Batch = Sequence[tuple[str, str]]
Record = Callable[[Batch], Awaitable[None]]
_NUMBERS = count()


class Tables(NamedTuple):
    """Where a way keeps facts and sums, and what reads its SQLite file.

    Two copies of SQLite in one process release each other's locks on a file, so that each file is read by
    the copy that writes it.
    """

    ledger: str
    sums: str
    tenant: str
    connect: Callable[[str], Any]


OURS = Tables("holdfast_usage_events", "holdfast_usage_sums", '"tenantId"', apsw.Connection)
BARE = Tables("ledger", "sums", "tenant", apsw.Connection)
SQLALCHEMY = Tables("ledger", "sums", "tenant", sqlite3.connect)


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


async def through_upserts(url: str) -> AsyncIterator[Record]:
    async with asynccontextmanager(orm_metering.open_sessions)(url) as sessions:

        async def record(batch: Batch) -> None:
            await orm_metering.record_by_upserts(sessions, batch, at=AT)

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


def floor(url: str) -> AsyncIterator[Record]:
    on_engine = floor_metering.on_sqlite if url.startswith("sqlite") else floor_metering.on_postgres
    return on_engine(url)


class Way:
    """One way to record, and what it must have counted so far."""

    def __init__(self, record: Record, url: str, tables: Tables) -> None:
        self.record, self._url, self._tables = record, url, tables
        self._counted: Counter[str] = Counter()

    async def check(self, facts: Iterable[tuple[str, str]]) -> None:
        """Compare ledger and sums with all facts so far; every turn has facts of its own."""
        self._counted.update([tenant for tenant, _ in set(facts)])
        ledger, sums, tenant, _ = self._tables
        for sql in (
            f"SELECT {tenant}, count(*) FROM {ledger} GROUP BY 1",
            f"SELECT {tenant}, value FROM {sums}",
        ):
            if dict(await self._rows(sql)) != self._counted:
                raise AssertionError(f"facts were lost or counted twice: {sql}")

    async def _rows(self, sql: str) -> list[tuple[str, int]]:
        if not self._url.startswith("sqlite"):
            link = await asyncpg.connect(self._url)
            rows = [tuple(row) for row in await link.fetch(sql)]
            await link.close()
            return rows
        with closing(self._tables.connect(self._url.partition("?")[0].removeprefix("sqlite:///"))) as file:
            return list(file.execute(sql))


def checked(
    way: Callable[[str], AsyncIterator[Record]], tables: Tables
) -> Callable[[str], AsyncIterator[Way]]:
    """Have what a way records compared with the facts after each turn."""

    async def opened(url: str) -> AsyncIterator[Way]:
        async with asynccontextmanager(way)(url) as record:
            yield Way(record, url, tables)

    return opened


async def facts_per_s(way: Way, place: Place) -> float:
    batches = place.scale(60, 20)
    given = new_batches(batches)
    started = time.perf_counter()
    for batch in given:
        await way.record(batch)
    figure = batches * BATCH / (time.perf_counter() - started)
    await way.check(chain.from_iterable(given))
    return figure


NAME = "metering, batches of 100 facts of 50 tenants"
ENGINES = ("sqlite full", "postgres")
_OURS, _FLOOR, _BARE = checked(through_holdfast, OURS), checked(floor, OURS), checked(bare, BARE)
WORKLOADS = [
    Workload(
        name=NAME, engines=ENGINES, unit="facts/s", goal=Goal(5.0), other_name=other_name,
        floor_name="the driver on our tables", floor_goal=None,
        open=beside(_OURS, checked(other, SQLALCHEMY), _FLOOR, figure=facts_per_s),
    )
    for other_name, other in (
        ("SQLAlchemy upserts, as documented", through_upserts),
        ("SQLAlchemy ORM, bulk", through_orm),
    )
]  # fmt: skip
WORKLOADS += [
    # Not even the bare loop has five times the rate of SQLAlchemy's Core statements.
    Workload(
        name=NAME, engines=ENGINES, unit="facts/s", goal=Goal(5.0), other_name="SQLAlchemy bulk",
        floor_name="a bare loop", floor_goal=None,
        open=beside(_OURS, checked(through_sqlalchemy, SQLALCHEMY), _BARE, figure=facts_per_s),
    ),
    Workload(
        name=NAME, engines=ENGINES, unit="facts/s", goal=Goal(0.4), other_name="a bare loop",
        floor_name="the driver on our tables", floor_goal=Goal(0.5),
        open=beside(_OURS, _BARE, _FLOOR, figure=facts_per_s),
    ),
]  # fmt: skip
