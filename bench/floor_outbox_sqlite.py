"""The deliveries' table on SQLite by hand; see `floor_outbox` for what is kept."""

from __future__ import annotations

import asyncio
import mmap
import threading
import time
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple

import apsw
import msgspec

from bench import raw_sqlite
from bench.floor_outbox import DECODE, LEASE_S, OWNER, FloorDelivery, Settlement
from holdfast.kit.outbox import OUTBOX_MODELS

BOARD_BYTES = 4_096
POLL_S = 0.001
CHECKPOINT_PAGES = 4_000
VERSIONS = 4_096
_NAMES = ('_key, _version, "tenantId", "finishedAt", status, "createdAt", "endpointId", "eventId",'
          ' "nextAttemptAt", fence, owner, _body')  # fmt: skip
_DUE = (
    'SELECT rowid, fence, _body FROM holdfast_deliveries WHERE "nextAttemptAt" <= ?'
    ' AND "nextAttemptAt" IS NOT NULL ORDER BY "nextAttemptAt", _key LIMIT ?'
)
_CLAIM = (
    'UPDATE holdfast_deliveries SET "nextAttemptAt" = ?, fence = fence + 1, _version = ?, owner = ?,'
    " status = 'sending' WHERE rowid IN (SELECT value FROM json_each(?))"
)


_VIEW = f"""
CREATE TEMP VIEW floor_batch (kind, key, version, status, fence, owner, at, event, due, body)
  AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;
CREATE TEMP TRIGGER floor_create INSTEAD OF INSERT ON floor_batch WHEN new.kind = 1 BEGIN
  INSERT INTO holdfast_deliveries ({_NAMES}) VALUES (new.key, new.version, '-', NULL, new.status, new.at,
    'ep', new.event, new.due, new.fence, new.owner, new.body);
END;
CREATE TEMP TRIGGER floor_settle INSTEAD OF INSERT ON floor_batch WHEN new.kind = 2 BEGIN
  UPDATE holdfast_deliveries SET _version = new.version, _patch = new.body, status = 'delivered',
    "finishedAt" = new.at, "nextAttemptAt" = NULL, owner = NULL
    WHERE _key = new.key AND fence = new.fence AND status = 'sending' AND _patch IS NULL;
END;
CREATE TEMP TRIGGER floor_check INSTEAD OF INSERT ON floor_batch WHEN new.kind = 0 BEGIN
  SELECT RAISE(ROLLBACK, 'a lease was lost') WHERE total_changes() <> new.key;
END"""


@cache
def _batch_sql(creates: int, settlements: int) -> str:
    """Bind the version, status, fence, owner and number of changes, then each row's own values."""
    created = "(1, ?{}, ?1, ?2, ?3, ?4, ?{}, ?{}, ?{}, ?{})"
    settled = "(2, ?{}, ?1, NULL, ?{}, NULL, ?{}, NULL, NULL, ?{})"
    end = 6 + 5 * creates
    rows = [created.format(*range(n, n + 5)) for n in range(6, end, 5)]
    rows += [settled.format(n, n + 3, n + 2, n + 1) for n in range(end, end + 4 * settlements, 4)]
    check = "(0, ?5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    return f"INSERT INTO floor_batch VALUES {', '.join([*rows, check])}"


class _Batch(NamedTuple):
    inserts: list[tuple[Any, ...]]
    callers: list[asyncio.Future[None]]
    settlements: list[Settlement]


class FloorSqlite:
    """The loop fills a batch while a thread commits the one before it."""

    def __init__(self, url: str, *, make: bool, owner: str | None) -> None:
        path = url.removeprefix("sqlite:///").partition("?")[0]
        self._link = raw_sqlite.connect(url, OUTBOX_MODELS.all if make else ())
        self._link.execute("PRAGMA wal_autocheckpoint = 0")
        self._link.execute("CREATE TABLE IF NOT EXISTS floor_versions (value INTEGER)")
        self._copying = raw_sqlite.connect(url)
        self._reading = raw_sqlite.connect(url)
        self._board = _open_board(path)
        self._owner = owner
        self._status, self._fence = ("sending", 1) if owner else ("pending", 0)
        self._loop = asyncio.get_running_loop()
        self._batch, self._is_writing = _Batch([], [], []), False
        self._jobs: SimpleQueue[_Batch | Callable[[], None] | None] = SimpleQueue()
        self._version = self._reserved = self._pages = self.settled = 0
        self._copy: threading.Thread | None = None
        self._began = threading.Semaphore(0)  # the thread needs no GIL from then on
        self._link.execute(_VIEW)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def insert(self, delivery: FloorDelivery, body: bytes) -> asyncio.Future[None]:
        created_us = _us(delivery.created_at)
        due_us = created_us + int(LEASE_S * 1e6) if self._owner else created_us
        done: asyncio.Future[None] = self._loop.create_future()
        self._batch.inserts.append((delivery.id, created_us, delivery.event_id, due_us, body.decode()))
        self._batch.callers.append(done)
        self._schedule()
        return done

    def settle(self, settlement: Settlement) -> None:
        self._batch.settlements.append(settlement)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_writing:
            self._is_writing = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        batch, self._batch = self._batch, _Batch([], [], [])
        self._jobs.put(batch)
        self._began.acquire(timeout=0.005)

    def _done(self, batch: _Batch, fault: Exception | None) -> None:
        for caller in batch.callers:
            if fault is None:
                caller.set_result(None)
            else:
                caller.set_exception(fault)
        self.settled += len(batch.settlements)
        self._is_writing = False
        if self._batch.inserts or self._batch.settlements:
            self._schedule()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not isinstance(job, _Batch):
                job()
                continue
            fault = None
            try:
                self._transact(job)
            except Exception as raised:
                fault = raised
            self._loop.call_soon_threadsafe(self._done, job, fault)
            self._advance_checkpoint()

    def _transact(self, batch: _Batch) -> None:
        """Make all changes by one statement, outside a transaction: the loop needs the GIL meanwhile."""
        if self._version >= self._reserved:
            self._next_version()
        self._version += 1
        count = len(batch.inserts) + len(batch.settlements)
        changes = self._link.total_changes() + count
        bound: list[Any] = [self._version, self._status, self._fence, self._owner, changes]
        for row in batch.inserts:
            bound += row
        for key, patch, finished_at, fence in batch.settlements:
            bound += (key, patch.decode(), _us(finished_at), fence)
        self._began.release()
        self._link.execute(_batch_sql(len(batch.inserts), len(batch.settlements)), bound)
        self._board[:8] = time.monotonic_ns().to_bytes(8, "little")

    def _next_version(self) -> int:
        if self._version >= self._reserved:
            self._reserved = self._version + VERSIONS
            self._link.execute("INSERT INTO floor_versions VALUES (?)", (self._reserved,))
        self._version += 1
        return self._version

    def _advance_checkpoint(self) -> None:
        """Copy the log beside further commits, and the rest of it between two."""
        self._pages += self._link.status(apsw.SQLITE_DBSTATUS_CACHE_WRITE, True)[0]
        if self._copy is not None:
            if not self._copy.is_alive():
                self._copy = None
                try:
                    self._copying.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
                except apsw.BusyError:
                    self._pages = CHECKPOINT_PAGES
        elif self._pages >= CHECKPOINT_PAGES:
            self._pages = 0
            self._copy = threading.Thread(target=self._copy_log)
            self._copy.start()

    def _copy_log(self) -> None:
        try:
            self._copying.wal_checkpoint()
        except apsw.BusyError:
            return  # another process copies it

    async def claim(self, limit: int) -> list[FloorDelivery]:
        now_us = time.time_ns() // 1_000
        if not self._reading.execute(_DUE, (now_us, 1)).fetchone():
            return []
        done: asyncio.Future[list[tuple[int, int, str]]] = self._loop.create_future()
        self._jobs.put(lambda: self._claim(now_us, limit, done))
        claimed = []
        for _, fence, body in await done:
            delivery = DECODE(body)
            delivery.fence, delivery.owner, delivery.status = fence + 1, OWNER, "sending"
            claimed.append(delivery)
        return claimed

    def _claim(self, now_us: int, limit: int, done: asyncio.Future[list[tuple[int, int, str]]]) -> None:
        self._link.execute("BEGIN IMMEDIATE")
        rows: list[Any] = self._link.execute(_DUE, (now_us, limit)).fetchall()
        found = msgspec.json.encode([row[0] for row in rows]).decode()
        values = (now_us + int(LEASE_S * 1e6), self._next_version(), OWNER, found)
        self._link.execute(_CLAIM, values)
        self._link.execute("COMMIT")
        self._loop.call_soon_threadsafe(done.set_result, rows)

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call back after commits of other processes."""
        seen = b""
        while True:
            now = self._board[:8]
            if now != seen:
                seen = now
                wake()
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        self._jobs.put(None)
        self._thread.join()
        if self._copy is not None:
            self._copy.join()
        for link in (self._link, self._copying, self._reading):
            link.close()


def _us(at: datetime) -> int:
    return round(at.timestamp() * 1e6)


def _open_board(path: str) -> mmap.mmap:
    file = Path(f"{path}-floor-board")
    if not file.exists():
        file.write_bytes(bytes(BOARD_BYTES))
    with file.open("r+b") as opened:
        return mmap.mmap(opened.fileno(), BOARD_BYTES)
