"""Events put out on our tables by hand: the least straight-line code that keeps what `Outbox.send` promises.

None of our code but the class that a delivery is encoded from and, on PostgreSQL, the text of the statement.
Kept: what a caller gives is checked, a delivery is validated by decoding what was encoded, versions come from
blocks that this process has reserved, an event whose id is taken fails alone, other tasks run between two
calls, and a commit is durable before the next begins. On SQLite also: the log is copied beside the writer,
other processes learn of a commit, a slow disk does not stop the loop, and a mark outside the log tells if it
is lost. On PostgreSQL the statement marks its batch and notifies.

Left out: any other event, endpoint or class than this one's, commits that share a transaction, retries, time
limits of statements, the notice that another process has written to a file, and reasons in words.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import chain
from queue import SimpleQueue
from typing import Any, Final

import apsw
import msgspec

from bench import raw_postgres, raw_sqlite
from bench.floor_outbox import VALIDATE
from holdfast import ids
from holdfast.kit.outbox import OUTBOX_MODELS, Delivery
from holdfast.store.postgres.statement import SEQUENCE
from holdfast.store.postgres.writer import VERSIONS_PER_BLOCK

BODY_BYTES_MAX: Final = 262_144
LOG_PAGES: Final = 4_000
PAGES_PER_EVENT: Final = 10  # of a lone one; in batches one
SQLITE_VERSIONS: Final = 4_096
MARK_NS: Final = 250_000_000
SLOW_NS: Final = 1_000_000
SLOW_NS_PER_ROW: Final = 15_000
CREDIT_NS: Final = 2_000_000_000
_EPOCH, _MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
_ENCODE: Final = msgspec.json.Encoder().encode
_COLUMNS: Final = (
    '_key, _version, "tenantId", "finishedAt", status, "createdAt", "endpointId", "eventId", "nextAttemptAt",'
    " fence, owner, _body"
)


@cache
def _insert(rows: int) -> str:
    """Return the statement of so many rows, which share their version and time."""
    marks = [f"(?{n}, ?1, '-', NULL, 'pending', ?2, 'ep', ?{n + 1}, ?2, 0, NULL, ?{n + 2})"
             for n in range(3, 3 * rows + 3, 3)]  # fmt: skip
    return f"INSERT INTO holdfast_deliveries ({_COLUMNS}) VALUES {', '.join(marks)}"


def checked_delivery(body: bytes, *, event_type: str, now: datetime) -> tuple[str, str, str]:
    """Return a new delivery's id, its event's id and its JSON; refuses what the class could not hold."""
    if type(body) is not bytes or len(body) > BODY_BYTES_MAX or type(event_type) is not str:
        raise ValueError("an event has a type and a body of at most 256 KB")
    event_id = ids.ulid()
    id = f"{event_id}~ep"
    delivery = Delivery(
        id=id, event_id=event_id, endpoint_id="ep", event_type=event_type, body=body, occurred_at=now,
        created_at=now, next_attempt_at=now,
    )  # fmt: skip
    encoded = _ENCODE(delivery)
    VALIDATE(encoded)
    return id, event_id, encoded.decode()


class LogCopier:
    """Copies the log in a thread of its own, and what is left of it between two commits."""

    def __init__(self, url: str) -> None:
        self._link = raw_sqlite.connect(url)
        self._link.execute("PRAGMA wal_autocheckpoint = 0")
        self._requests: SimpleQueue[bool] = SimpleQueue()
        self._copying = self._copied = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self.pages = 0

    def advance(self) -> None:
        """Take the next step; called between two commits where the log is long."""
        if self._copied:
            self._link.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
            self._copied, self.pages = False, 0
        elif not self._copying:
            self._copying = True
            self._requests.put(True)

    def close(self) -> None:
        self._requests.put(False)
        self._thread.join()
        self._link.close()

    def _run(self) -> None:
        while self._requests.get():
            for _ in range(3):
                self._link.wal_checkpoint()
            self._copied, self._copying = True, False


class SqliteDeliveries:
    """Events are committed in place, one or many, while the disk is fast."""

    def __init__(self, url: str) -> None:
        self._path = url.removeprefix("sqlite:///").partition("?")[0]
        self._link = raw_sqlite.connect(url, OUTBOX_MODELS.all)
        self._link.execute("PRAGMA wal_autocheckpoint = 0; PRAGMA mmap_size = 0")
        self._link.execute("CREATE TABLE _holdfast_meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID")
        self._link.execute("INSERT INTO _holdfast_meta VALUES ('version', 0)")
        self._group = raw_sqlite.GroupCommit(self._link)
        self._copier = LogCopier(url)
        self._version = self._reserved = self._mark_ns = self._in_place_ns = 0
        descriptor = os.open(f"{self._path}-board", os.O_RDWR | os.O_CREAT, 0o600)
        os.pwrite(descriptor, bytes(4_096), 0)
        self._board = mmap.mmap(descriptor, 4_096)
        os.close(descriptor)

    async def put_out(self, body: bytes, event_type: str) -> str:
        """Put one event out; return its delivery's id."""
        now = datetime.now(UTC)
        row = checked_delivery(body, event_type=event_type, now=now)
        await asyncio.sleep(0)
        started_ns = time.monotonic_ns()
        values = (self._next_version(started_ns), _us(now), *row)
        if started_ns < self._in_place_ns:
            await self._group.put(values, _insert(1))
        else:
            self._link.execute(_insert(1), values)  # raises where the id is taken
        self._end(started_ns, PAGES_PER_EVENT, ns_max=SLOW_NS)
        return row[0]

    async def put_out_many(self, bodies: Sequence[bytes], event_type: str) -> list[str | None]:
        """Put events out in one transaction; return their deliveries' ids, None where one was taken."""
        now = datetime.now(UTC)
        rows = [checked_delivery(body, event_type=event_type, now=now) for body in bodies]
        await asyncio.sleep(0)
        shared = (self._next_version(time.monotonic_ns()), _us(now))
        values, started_ns = (*shared, *chain.from_iterable(rows)), time.monotonic_ns()
        try:
            if started_ns < self._in_place_ns:
                await self._group.put(values, _insert(len(rows)))
            else:
                self._link.execute(_insert(len(rows)), values)
        except apsw.ConstraintError:
            return [await self._put_alone((*shared, *row)) for row in rows]
        self._end(started_ns, len(rows), ns_max=SLOW_NS + SLOW_NS_PER_ROW * len(rows))
        return [row[0] for row in rows]

    async def _put_alone(self, values: tuple[Any, ...]) -> str | None:
        try:
            await self._group.put(values, _insert(1))
        except apsw.ConstraintError:
            return None
        return str(values[2])

    def _next_version(self, now_ns: int) -> int:
        """Return the next version; reserve more, and mark the last ones, where none is left or it is time."""
        if self._version == self._reserved or now_ns >= self._mark_ns:
            descriptor = os.open(f"{self._path}-mark", os.O_RDWR | os.O_CREAT, 0o600)
            os.pwrite(descriptor, f"{self._reserved}\n".encode(), 0)
            os.fsync(descriptor)
            os.close(descriptor)
            self._reserved = self._version + SQLITE_VERSIONS
            self._link.execute("UPDATE _holdfast_meta SET value = ?", (self._reserved,))
            self._mark_ns = now_ns + MARK_NS
        self._version += 1
        return self._version

    def _end(self, started_ns: int, pages: int, *, ns_max: int) -> None:
        """Tell other processes of a commit, pause commits in place where it took long, copy a long log."""
        now_ns = time.monotonic_ns()
        excess_ns = now_ns - started_ns - ns_max
        if excess_ns > 0:
            self._in_place_ns = max(self._in_place_ns, started_ns - CREDIT_NS) + 100 * excess_ns
        self._board[8:16] = now_ns.to_bytes(8, "little")
        self._copier.pages += pages
        if self._copier.pages >= LOG_PAGES:
            self._copier.advance()

    async def close(self) -> None:
        self._group.close()
        self._copier.close()
        self._board.close()


def _us(at: datetime) -> int:
    return (at - _EPOCH) // _MICROSECOND


class PostgresDeliveries:
    """Each call is the statement that our writer sends, of one row or of many."""

    def __init__(self, link: Any) -> None:
        self._link, self._statement = link, raw_postgres.MarkedStatement(Delivery)
        self._version = self._reserved = 0

    @classmethod
    async def open(cls, url: str) -> PostgresDeliveries:
        return cls(await raw_postgres.connect(url, OUTBOX_MODELS.all))

    async def put_out(self, body: bytes, event_type: str) -> str:
        """Put one event out; return its delivery's id."""
        now = datetime.now(UTC)
        id, event_id, text = checked_delivery(body, event_type=event_type, now=now)
        version = await self._next_version()
        await self._statement.execute(
            self._link, id, version, "-", None, "pending", now, "ep", event_id, now, 0, None, text
        )
        return id

    async def put_out_many(self, bodies: Sequence[bytes], event_type: str) -> list[str]:
        """Put events out by one statement; it names those whose ids are taken, and makes the others."""
        now = datetime.now(UTC)
        made = [checked_delivery(body, event_type=event_type, now=now) for body in bodies]
        version = await self._next_version()
        rows = [
            (id, version, "-", None, "pending", now, "ep", event_id, now, 0, None, text)
            for id, event_id, text in made
        ]
        await self._statement.execute_rows(self._link, rows)
        return [row[0] for row in made]

    async def _next_version(self) -> int:
        if self._version == self._reserved:
            self._version = await self._link.fetchval(f"SELECT nextval('{SEQUENCE}')")
            self._reserved = self._version + VERSIONS_PER_BLOCK
        self._version += 1
        return self._version

    async def close(self) -> None:
        await self._link.close()


FloorDeliveries = SqliteDeliveries | PostgresDeliveries


async def open_floor(url: str) -> FloorDeliveries:
    """Open an empty store whose deliveries are put out by hand."""
    return SqliteDeliveries(url) if url.startswith("sqlite") else await PostgresDeliveries.open(url)
