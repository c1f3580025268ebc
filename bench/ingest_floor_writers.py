"""The writers of `ingest_floor`: rows of our inbox in batches, with the outcome of each known."""

from __future__ import annotations

import asyncio
import itertools
import mmap
import os
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import apsw

from bench import raw_postgres, raw_sqlite
from holdfast.kit.inbox import InboxItem
from holdfast.model import schema_of
from holdfast.store.catalog import Catalog
from holdfast.store.postgres.statement import BATCHES, PostgresTable, TableChange, render
from holdfast.store.postgres.writer import MARKS_MAX

_NAMES: Final = (
    "_key", "_version", "tenantId", "finishedAt", "status", "receivedAt", "queue", "turn", "lane", "dueAt",
    "fence", "owner", "_body",
)  # fmt: skip
_QUOTED: Final = ", ".join(f'"{name}"' for name in _NAMES)
_ROW: Final = f"({','.join('?' * len(_NAMES))})"
_SLICES: Final = (32, 8, 1)
_INSERTS: Final = {
    size: f"INSERT OR IGNORE INTO holdfast_inbox ({_QUOTED}) VALUES {','.join([_ROW] * size)}"
    for size in _SLICES
}
_CHECKPOINT_PAGES: Final = 4_000
_BOARD_BYTES: Final = 16_384
Row = tuple[Any, ...]
# Told whether the message was kept, False where it is a duplicate, None where the store failed.
Respond = Callable[[bool | None], None]
_Taken = list[tuple[Respond, Row]]


class SqliteWriter:
    """A thread that inserts all waiting rows in one transaction; another checkpoints."""

    def __init__(self, url: str) -> None:
        self._link = raw_sqlite.connect(url, [InboxItem])
        self._link.execute("PRAGMA wal_autocheckpoint = 0")
        path = self._link.filename
        self._other = apsw.Connection(path)
        self._board = _open_board(f"{path}-board")
        self._loop, self._versions = asyncio.get_running_loop(), itertools.count(1)
        self._waiting: deque[tuple[Respond, Row]] = deque()
        self._filled, self._is_long = threading.Event(), threading.Event()
        self._copied, self._pages = False, 0
        for work in (self._write, self._checkpoint):
            threading.Thread(target=work, daemon=True).start()

    def put(self, respond: Respond, row: Row) -> None:
        self._waiting.append((respond, row))
        if not self._filled.is_set():
            self._filled.set()

    def _write(self) -> None:
        while self._filled.wait():
            self._filled.clear()
            taken = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if not taken:
                continue
            kept: Sequence[bool | None]
            try:
                kept = self._transact([row for _, row in taken], next(self._versions))
            except apsw.Error:
                kept = [None] * len(taken)
            self._board[:8] = time.monotonic_ns().to_bytes(8, "little")
            self._loop.call_soon_threadsafe(_respond, taken, kept)
            self._restart_log()

    def _transact(self, rows: list[Row], version: int) -> list[bool]:
        execute, changes = self._link.execute, self._link.changes
        kept: list[bool] = []
        execute("BEGIN IMMEDIATE")
        try:
            start = 0
            while (left := len(rows) - start) > 0:
                size = next(one for one in _SLICES if one <= left)
                some = rows[start : start + size]
                execute(_INSERTS[size], _values(some, version))
                if changes() < size and size > 1:
                    # An id was taken: which is found one by one.
                    execute("ROLLBACK")
                    return self._one_by_one(rows, version)
                kept += [changes() > 0] * size
                start += size
            execute("COMMIT")
        except BaseException:
            if self._link.in_transaction:
                execute("ROLLBACK")
            raise
        return kept

    def _one_by_one(self, rows: list[Row], version: int) -> list[bool]:
        kept = []
        self._link.execute("BEGIN IMMEDIATE")
        for row in rows:
            self._link.execute(_INSERTS[1], _values([row], version))
            kept.append(self._link.changes() > 0)
        self._link.execute("COMMIT")
        return kept

    def _restart_log(self) -> None:
        pages = self._link.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE)[0]
        if self._copied:
            self._other.execute("PRAGMA wal_checkpoint(RESTART)")
            self._copied, self._pages = False, pages
        elif pages - self._pages > _CHECKPOINT_PAGES:
            self._is_long.set()

    def _checkpoint(self) -> None:
        while self._is_long.wait():
            for _ in range(3):
                self._other.execute("PRAGMA wal_checkpoint(PASSIVE)")
            self._is_long.clear()
            self._copied = True


def _values(rows: Sequence[Row], version: int) -> list[Any]:
    values = [value for row in rows for value in row]
    values[1 :: len(_NAMES)] = [version] * len(rows)
    return values


def _open_board(path: str) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.pwrite(descriptor, bytes(_BOARD_BYTES), 0)
        return mmap.mmap(descriptor, _BOARD_BYTES)
    finally:
        os.close(descriptor)


def _respond(taken: _Taken, kept: Sequence[bool | None]) -> None:
    for (respond, _), stored in zip(taken, kept, strict=True):
        respond(stored)


class PostgresWriter:
    """Tasks with a connection each insert all waiting rows by one statement."""

    def __init__(self, links: Sequence[Any]) -> None:
        schema = schema_of(InboxItem)
        mapping = PostgresTable(schema, Catalog([InboxItem]).table(schema))
        assert mapping.names == _NAMES
        self._change = TableChange("try", mapping.table, mapping.names, mapping.arrays)
        self._note = f"{secrets.token_hex(4)} {mapping.table}"
        self._numbers = itertools.count(1)
        self._waiting: _Taken = []
        self._filled = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run(link)) for link in links]

    def put(self, respond: Respond, row: Row) -> None:
        self._waiting.append((respond, row))
        self._filled.set()

    async def _run(self, link: Any) -> None:
        while True:
            await self._filled.wait()
            # Callers that were just answered may ask again before the batch is closed.
            await asyncio.sleep(0)
            taken, self._waiting = self._waiting, []
            self._filled.clear()
            if taken:
                await self._insert(link, taken)

    async def _insert(self, link: Any, taken: _Taken) -> None:
        number = next(self._numbers)
        rows = {row[0]: (row[0], number, *row[2:]) for _, row in taken}
        if len(rows) < len(taken):
            # The first of those with the same id is kept.
            rows = {row[0]: (row[0], number, *row[2:]) for _, row in reversed(taken)}
        self._change.rows = list(rows.values())
        text, values = render([self._change], number, self._note)
        try:
            result = await link.fetchrow(text, *values)
        except Exception:
            _respond(taken, [None] * len(taken))
            return
        if result is not None and not result[0] and len(rows) == len(taken):
            _respond(taken, [True] * len(taken))
        else:
            _respond(taken, _kept(taken, set(rows), result))
        if number % MARKS_MAX == 0:
            await link.execute(f"DELETE FROM {BATCHES} WHERE id <= $1", number)


def _kept(taken: _Taken, keys: set[str], result: Any) -> list[bool]:
    """Say of each message whether it was kept, where some were not."""
    fresh = set() if result is None else keys - {one.partition(":")[2] for one in result[0] or ()}
    kept = []
    for _, row in taken:
        kept.append(row[0] in fresh)
        fresh.discard(row[0])
    return kept


async def open_writer(url: str) -> SqliteWriter | PostgresWriter:
    """Make our table in an empty store and return what writes to it."""
    if url.startswith("sqlite"):
        return SqliteWriter(url)
    links = [await raw_postgres.connect(url, made) for made in ([InboxItem], ())]
    for link in links:
        await link.set_type_codec("json", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary")
    return PostgresWriter(links)
