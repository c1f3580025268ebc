"""SQLite without Holdfast: what somebody would write by hand who cares for nothing but speed.

The tables and indexes are the same. No expectation is checked, no version is given out, a fault
in one document fails all that share its transaction.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import apsw
import msgspec

from bench.event import Delivery, Event
from holdfast.app import ddl
from holdfast.store.catalog import Catalog

INSERT = "INSERT INTO events (_key, _version, kind, received_ms, subject, _body) VALUES (?, ?, ?, ?, ?, ?)"
GET = "SELECT _body FROM events WHERE _key = ?"
CLAIM = (
    "UPDATE deliveries SET due = ?, fence = fence + 1, owner = ?, status = 'sending' WHERE _key IN"
    " (SELECT _key FROM deliveries WHERE due <= ? ORDER BY due, _key LIMIT ?)"
    " RETURNING _key, fence, _body"
)
SETTLE = (
    "UPDATE deliveries SET due = NULL, status = 'delivered' FROM"
    " (SELECT value ->> 0 AS k, value ->> 1 AS f FROM json_each(?)) AS taken"
    " WHERE _key = taken.k AND fence = taken.f"
)


def connect(url: str, *, make: bool = True) -> apsw.Connection:
    path, _, option = url.removeprefix("sqlite:///").partition("?synchronous=")
    link = apsw.Connection(path)
    for pragma in ("journal_mode = WAL", f"synchronous = {option}", "cache_size = -65536",
                   "mmap_size = 268435456", "wal_autocheckpoint = 4000"):  # fmt: skip
        link.execute(f"PRAGMA {pragma}")
    if make:
        for statement in ddl("sqlite", Catalog([Event, Delivery])):
            link.execute(statement)
    return link


class GroupCommit:
    """A thread that commits all waiting rows in one transaction and answers their callers."""

    def __init__(self, link: apsw.Connection, statement: str = INSERT) -> None:
        self._link, self._statement = link, statement
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[str, tuple[Any, ...], asyncio.Future[None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def insert(self, event: Event) -> None:
        body = msgspec.json.encode(event).decode()
        await self.put((event.id, 1, event.kind, event.received_ms, event.subject, body))

    async def put(self, row: tuple[Any, ...], statement: str = "") -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._queue.put((statement or self._statement, row, done))
        await done

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            taken = [first]
            while not self._queue.empty() and len(taken) < 1_000:
                item = self._queue.get()
                if item is None:
                    return
                taken.append(item)
            self._link.execute("BEGIN IMMEDIATE")
            for statement, row, _ in taken:
                self._link.execute(statement, row)
            self._link.execute("COMMIT")
            self._loop.call_soon_threadsafe(_answer, [done for *_, done in taken])


def _answer(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        done.set_result(None)


_DECODE = msgspec.json.Decoder(Delivery).decode


def claim(link: apsw.Connection, now_us: int, limit: int) -> list[tuple[str, int, Delivery]]:
    """One statement, one commit; the documents decoded, as a worker needs them."""
    rows = link.execute(CLAIM, (now_us + 60_000_000, "worker", now_us, limit))
    return [(key, fence, _DECODE(body)) for key, fence, body in rows]


def settle(link: apsw.Connection, taken: Sequence[tuple[str, int, Delivery]]) -> None:
    """One statement, one commit; lost leases are left alone."""
    pairs = msgspec.json.encode([(key, fence) for key, fence, _ in taken]).decode()
    link.execute(SETTLE, (pairs,))
