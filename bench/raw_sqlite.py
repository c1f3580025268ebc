"""SQLite without Holdfast: what somebody would write by hand who cares for nothing but speed.

The tables and indexes are the same. No expectation is checked, no version is given out, a fault
in one document fails all that share its transaction.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from bench.event import Delivery, Event
from holdfast.app import ddl
from holdfast.model import Document
from holdfast.store.catalog import Catalog

T = TypeVar("T")
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
_LOCK_POLL_S = 0.0002


def connect(url: str, classes: Iterable[type[Document]] = (), *, cached: bool = True) -> apsw.Connection:
    """Open the file, with a large cache unless SQLite's default will do; make the tables of these classes."""
    path, _, option = url.removeprefix("sqlite:///").partition("?synchronous=")
    link = apsw.Connection(path)
    link.set_busy_handler(_wait_for_lock)
    chosen = list(classes)
    if chosen:
        link.execute("PRAGMA auto_vacuum = INCREMENTAL")  # as ours, whose files can shrink
    pragmas = ["journal_mode = WAL", f"synchronous = {option}", "wal_autocheckpoint = 4000"]
    if cached:
        pragmas += ["cache_size = -65536", "mmap_size = 268435456"]
    for pragma in pragmas:
        link.execute(f"PRAGMA {pragma}")
    if chosen:
        for statement in ddl("sqlite", Catalog(chosen)):
            link.execute(statement)
    return link


def _wait_for_lock(tries: int) -> bool:
    time.sleep(_LOCK_POLL_S)
    return True


class _Job(NamedTuple):
    work: Callable[[], Any]
    done: asyncio.Future[Any]
    is_statement: bool


class GroupCommit:
    """A thread that commits all waiting work in one transaction and answers its callers.

    In another thread than the event loop's, which goes on while the disk syncs.
    """

    def __init__(self, link: apsw.Connection, statement: str = INSERT) -> None:
        self._link, self._statement = link, statement
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def insert(self, event: Event) -> None:
        body = msgspec.json.encode(event).decode()
        await self.put((event.id, 1, event.kind, event.received_ms, event.subject, body))

    async def put(self, row: Sequence[Any], statement: str = "") -> None:
        """Execute a statement; alone it needs no other to begin and end a transaction."""
        await self._add(partial(self._link.execute, statement or self._statement, row), is_statement=True)

    async def do(self, work: Callable[[], T]) -> T:
        """Do work that is more than one statement, or has a result."""
        result: T = await self._add(work, is_statement=False)
        return result

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()
        self._link.close()

    def _add(self, work: Callable[[], Any], *, is_statement: bool) -> asyncio.Future[Any]:
        done = self._loop.create_future()
        self._queue.put(_Job(work, done, is_statement))
        return done

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            taken = [job]
            while not self._queue.empty() and len(taken) < 1_000:
                job = self._queue.get()
                if job is None:
                    return
                taken.append(job)
            try:
                answers = self._transact(taken)
            except Exception as fault:
                answers = [(one.done, fault) for one in taken]
            self._loop.call_soon_threadsafe(_answer, answers)

    def _transact(self, taken: list[_Job]) -> list[tuple[asyncio.Future[Any], Any]]:
        if len(taken) == 1 and taken[0].is_statement:
            return [(taken[0].done, taken[0].work())]
        self._link.execute("BEGIN IMMEDIATE")
        try:
            answers = [(done, work()) for work, done, _ in taken]
            self._link.execute("COMMIT")
        except Exception:
            self._link.execute("ROLLBACK")
            raise
        return answers


def _answer(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, answer in answers:
        if isinstance(answer, Exception):
            done.set_exception(answer)
        else:
            done.set_result(answer)


_DECODE = msgspec.json.Decoder(Delivery).decode


def claim(link: apsw.Connection, now_us: int, limit: int) -> list[tuple[str, int, Delivery]]:
    """One statement, one commit; the documents decoded, as a worker needs them."""
    rows = link.execute(CLAIM, (now_us + 60_000_000, "worker", now_us, limit))
    return [(key, fence, _DECODE(body)) for key, fence, body in rows]


def settle(link: apsw.Connection, taken: Sequence[tuple[str, int, Delivery]]) -> None:
    """One statement, one commit; lost leases are left alone."""
    pairs = msgspec.json.encode([(key, fence) for key, fence, _ in taken]).decode()
    link.execute(SETTLE, (pairs,))
