"""Metering on our tables by the driver and by hand: what our promises cost at least.

Straight lines for this one class, metric and day, none of our code but the statement's clause that counts. A
fact's id and number are checked, and its ledger document is encoded and validated by decoding it. A batch is
one transaction with a version, in which the insert itself says which facts are new, and only those are
counted. The sums' conditions (range, tenant, size) are kept, and a sum is a document that our store reads. On
SQLite the transaction is made in another thread than the event loop's, looks whether another process has
committed, is posted in shared memory, and checkpoints are made beside it. On PostgreSQL it is one statement,
with the mark that tells its outcome after a broken link and the notification of other processes.

Left out: whatever serves more than one class, metric or day, or more than one caller (the queue of commits,
sums of several metrics, errors in words, a batch without a new fact), the second way where a condition does
not hold, time limits, and on SQLite the mark outside the file.
"""

from __future__ import annotations

import asyncio
import mmap
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count
from typing import Any, cast

import apsw
import msgspec

from bench import raw_postgres, raw_sqlite
from holdfast.kit.metering import METER_MODELS, UsageSum
from holdfast.model import schema_of
from holdfast.store.postgres.dialect import DIALECT as POSTGRES
from holdfast.store.postgres.statement import BATCHES, CHANNEL
from holdfast.store.postgres.writer import MARKS_MAX
from holdfast.store.sql.counting_upsert import counting_clause
from holdfast.store.sqlite.dialect import DIALECT as SQLITE

AT = datetime(2026, 11, 15, 12, tzinfo=UTC)
DAY = "2026-11-15"
CHECKPOINT_PAGES = 4_000
Batch = Sequence[tuple[str, str]]
Record = Callable[[Batch], Awaitable[None]]
_VERSIONS = count(1 << 40)  # past those of a store that filled the same database
_IS_ID = re.compile(r"[A-Za-z0-9:@+=~-][A-Za-z0-9:@+=~._-]{0,120}").fullmatch


class _Event(msgspec.Struct, rename="camel", gc=False):
    id: str
    tenant_id: str
    fact: str
    at: datetime
    month: str
    kind: str
    metrics: dict[str, int]
    metadata: Any = None


class _Sum(msgspec.Struct, rename="camel", gc=False):
    id: str
    tenant_id: str
    metric: str
    day: str
    month: str
    shard: int
    value: int


_ENCODE, _DECODE_EVENT = msgspec.json.Encoder().encode, msgspec.json.Decoder(_Event).decode
_DECODE_SUM = msgspec.json.Decoder(_Sum).decode
_CHECKED_SUMS_MAX = 2_000


def _checked_rows(batch: Batch) -> list[tuple[str, str, str]]:
    """Return key, tenant and document of each distinct fact."""
    rows = {}
    for tenant, fact in batch:
        key, by = f"{tenant}_{fact}", 1
        if not _IS_ID(key) or not -(1 << 63) <= by < 1 << 63:
            raise ValueError("refused")
        body = _ENCODE(_Event(key, tenant, fact, AT, DAY[:7], "", {"calls": by}))
        rows[key] = (key, _DECODE_EVENT(body).tenant_id, body.decode())
    return list(rows.values())


@lru_cache(_CHECKED_SUMS_MAX)
def _sum_row(tenant: str, value: int) -> tuple[str, str, int, str]:
    key = f"{tenant}_calls_{DAY}_0"
    body = _ENCODE(_Sum(key, tenant, "calls", DAY, DAY[:7], 0, value))
    _DECODE_SUM(body)
    return key, tenant, value, body.decode()


def _clause(dialect: Any) -> str:
    schema = schema_of(UsageSum)
    column = schema.column("value")
    assert column is not None
    return counting_clause(schema, column, dialect)


_EVENT_NAMES = '_key, "tenantId", _body, _version, at'
_SUM_NAMES = '_key, "tenantId", value, _body, _version, metric, day, month'


class FloorSqlite:
    """Writes in a thread of its own; a long log is copied in another."""

    def __init__(self, link: apsw.Connection, copier: apsw.Connection) -> None:
        self._link, self._copier = link, copier
        self._clause, self._at_us = _clause(SQLITE), round(AT.timestamp() * 1e6)
        self._data_version = link.data_version()
        self._board = memoryview(mmap.mmap(-1, 4_096)).cast("Q")
        self._pages, self._copying = 0, cast("Future[object] | None", None)
        self._loop = asyncio.get_running_loop()
        self._writer, self._copies = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    async def record(self, batch: Batch) -> None:
        rows, done = _checked_rows(batch), self._loop.create_future()
        self._writer.submit(self._write, rows, done)
        await done

    def _write(self, rows: list[tuple[str, str, str]], done: asyncio.Future[int]) -> None:
        execute, version = self._link.execute, next(_VERSIONS)
        try:
            execute("BEGIN IMMEDIATE")
            if self._link.data_version() != self._data_version:
                raise ValueError("another process has committed")
            new = Counter([row[0] for row in execute(*self._insert(rows, version))])
            execute(*self._count(new, version))
            if self._link.changes() != len(new):
                raise ValueError("a sum can't be counted in")
            execute("COMMIT")
        except Exception as fault:
            self._loop.call_soon_threadsafe(done.set_exception, fault)
            return
        self._data_version = self._link.data_version()
        self._board[0] = time.monotonic_ns()
        self._loop.call_soon_threadsafe(done.set_result, new.total())
        self._checkpoint()

    def _insert(self, rows: list[tuple[str, str, str]], version: int) -> tuple[str, list[Any]]:
        values: list[Any] = []
        for key, tenant, body in rows:
            values += (key, tenant, body, version, self._at_us)
        return _insert_events(len(rows)), values

    def _count(self, new: Counter[str], version: int) -> tuple[str, list[Any]]:
        values: list[Any] = []
        for tenant, value in new.items():
            values += (*_sum_row(tenant, value), version, "calls", DAY, DAY[:7])
        return _insert_sums(len(new)) + self._clause, values

    def _checkpoint(self) -> None:
        """Have a long log copied beside further commits; then copy the rest, so that it starts anew."""
        self._pages += self._link.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)[0]
        if self._pages < CHECKPOINT_PAGES:
            return
        if self._copying is None:
            self._copying = self._copies.submit(self._copier.wal_checkpoint)
        elif self._copying.done():
            self._copier.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            self._pages, self._copying = 0, None

    def close(self) -> None:
        self._writer.shutdown()
        self._copies.shutdown()
        self._copier.close()
        self._link.close()


@lru_cache
def _insert_events(count: int) -> str:
    rows = ",".join(["(?,?,?,?,?)"] * count)
    return f'INSERT OR IGNORE INTO holdfast_usage_events ({_EVENT_NAMES}) VALUES {rows} RETURNING "tenantId"'


@lru_cache
def _insert_sums(count: int) -> str:
    rows = ",".join(["(?,?,?,?,?,?,?,?)"] * count)
    return f"INSERT OR ROLLBACK INTO holdfast_usage_sums AS t ({_SUM_NAMES}) VALUES {rows} "


async def on_sqlite(url: str) -> AsyncIterator[Record]:
    link = raw_sqlite.connect(url, METER_MODELS.all)
    copier = raw_sqlite.connect(url)
    link.execute("PRAGMA wal_autocheckpoint = 0")
    floor = FloorSqlite(link, copier)
    yield floor.record
    floor.close()


class FloorPostgres:
    """One statement for a batch; a sum that is new begins at nought and has its value as a patch."""

    def __init__(self, link: Any) -> None:
        self._link, self._note = link, "floor holdfast_usage_events holdfast_usage_sums"
        given = (
            "SELECT k, t, n, b, $8::bigint, 'calls', $9::text, $10::text,"
            """ CAST('{"value":' || n || '}' AS json) FROM unnest($5::text::text[], $6::text::text[],"""
            ' $7::json[]) AS g(k, t, b) JOIN (SELECT "tenantId" AS t, count(*) AS n FROM x0 GROUP BY 1) AS c'
            " USING (t) ORDER BY k"
        )
        self._text = (
            f"WITH x0 AS (INSERT INTO holdfast_usage_events ({_EVENT_NAMES})"
            " SELECT k, t, b, $8::bigint, $11::timestamptz FROM unnest($2::text::text[], $3::text::text[],"
            ' $4::json[]) AS u(k, t, b) ON CONFLICT DO NOTHING RETURNING "tenantId"),'
            f" x1 AS (INSERT INTO holdfast_usage_sums AS t ({_SUM_NAMES}, _patch) {given}"
            f" {_clause(POSTGRES)} RETURNING 1), mark AS (INSERT INTO {BATCHES} (id) SELECT $8::bigint / CASE"
            ' WHEN (SELECT count(*) FROM x1) = (SELECT count(DISTINCT "tenantId") FROM x0) THEN 1 ELSE 0 END'
            f" RETURNING 1) SELECT (SELECT count(*) FROM x0), pg_notify('{CHANNEL}', $1) FROM mark"
        )

    async def record(self, batch: Batch) -> None:
        rows, version = sorted(_checked_rows(batch)), next(_VERSIONS)
        keys, tenants, bodies = zip(*rows, strict=True)
        sums = [_sum_row(tenant, 0) for tenant in dict.fromkeys(tenants)]
        sum_keys, sum_tenants, _, sum_bodies = zip(*sums, strict=True)
        await self._link.fetchrow(
            self._text, self._note, _text_array(keys), _text_array(tenants), bodies, _text_array(sum_keys),
            _text_array(sum_tenants), sum_bodies, version, DAY, DAY[:7], AT,
        )  # fmt: skip
        if version % MARKS_MAX == 0:
            await self._link.execute(f"DELETE FROM {BATCHES} WHERE id <= $1", version)


def _text_array(values: Sequence[str]) -> str:
    """The literal of an array of ids, which have no character that needs a quote."""
    return '{"' + '","'.join(values) + '"}'


async def on_postgres(url: str) -> AsyncIterator[Record]:
    link = await raw_postgres.connect(url, METER_MODELS.all)
    yield FloorPostgres(link).record
    await link.close()
