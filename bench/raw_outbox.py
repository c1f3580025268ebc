"""An outbox without Holdfast: the loop somebody would write by hand who cares for nothing but speed.

Group commit, handover or batch claim, sign, send, batch settle, on the same tables and indexes and by the
same sender; on PostgreSQL an insert may be the statement of our writer. No expectation is checked, no attempt
is recorded, no limit is kept, nothing is ever tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from bench import raw_postgres, raw_sqlite
from holdfast import ids
from holdfast.kit.outbox import OUTBOX_MODELS, Delivery, Sign
from holdfast.net import OutgoingRequest, Sender
from holdfast.store.postgres.statement import CHANNEL

BATCH = 100
LEASE_US = 30_000_000
POLL_S = 0.001
ENCODE = msgspec.json.Encoder().encode
DECODE = msgspec.json.Decoder(Delivery).decode
COLUMNS = ("_key", "_version", "tenantId", "finishedAt", "status", "createdAt", "endpointId", "eventId",
           "nextAttemptAt", "fence", "owner", "_body")  # fmt: skip


def new_delivery(body: bytes, at: datetime | None = None) -> Delivery:
    now, event_id = at or datetime.now(UTC), ids.ulid()
    return Delivery(
        id=f"{event_id}~ep", event_id=event_id, endpoint_id="ep", event_type="thing.made", body=body,
        occurred_at=now, created_at=now, next_attempt_at=now,
    )  # fmt: skip


def delivery_row(delivery: Delivery, at: Any) -> tuple[Any, ...]:
    """Return the columns' values; `at` is when it was created, as the engine stores times."""
    body = ENCODE(delivery).decode()
    return (delivery.id, 1, "-", None, "pending", at, "ep", delivery.event_id, at, 0, "", body)


_TYPES = (
    "text", "bigint", "text", "timestamptz", "text", "timestamptz", "text", "text", "timestamptz", "bigint",
    "text", "json",
)  # fmt: skip
_NAMES = ", ".join(f'"{name}"' for name in COLUMNS)
_POSTGRES_INSERT = raw_postgres.insert_rows("holdfast_deliveries", _NAMES, _TYPES)


@cache
def sqlite_insert(rows: int) -> str:
    marks = f"({', '.join('?' * len(COLUMNS))})"
    return f"INSERT INTO holdfast_deliveries ({_NAMES}) VALUES {', '.join([marks] * rows)}"


class SqliteBook:
    """A thread that commits all waiting rows in one transaction and answers their callers."""

    def __init__(self, url: str, *, make: bool) -> None:
        self._link = raw_sqlite.connect(url, OUTBOX_MODELS.all if make else ())
        self._reading = raw_sqlite.connect(url)
        self._group = raw_sqlite.GroupCommit(self._link, sqlite_insert(1))

    async def insert(self, delivery: Delivery) -> None:
        await self._group.put(delivery_row(delivery, time.time_ns() // 1_000))

    async def claim(self, limit: int) -> list[Delivery]:
        now_us = time.time_ns() // 1_000
        sql = (
            'UPDATE holdfast_deliveries SET "nextAttemptAt" = ?, fence = fence + 1, owner = ?,'
            " status = 'sending' WHERE _key IN (SELECT _key FROM holdfast_deliveries WHERE"
            ' "nextAttemptAt" <= ? ORDER BY "nextAttemptAt", _key LIMIT ?) RETURNING _body'
        )
        words = (now_us + LEASE_US, "raw", now_us, limit)
        rows = await self._group.do(lambda: self._link.execute(sql, words).fetchall())
        return [DECODE(str(body)) for (body,) in rows]

    async def settle(self, keys: list[str]) -> None:
        sql = (
            "UPDATE holdfast_deliveries SET \"nextAttemptAt\" = NULL, status = 'delivered',"
            ' "finishedAt" = ? WHERE _key IN (SELECT value FROM json_each(?))'
        )
        await self._group.put((time.time_ns() // 1_000, ENCODE(keys).decode()), sql)

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call back when something that other processes have put out is due."""
        due = 'SELECT 1 FROM holdfast_deliveries WHERE "nextAttemptAt" <= ? LIMIT 1'
        while True:
            if self._reading.execute(due, (time.time_ns() // 1_000,)).fetchone():
                wake()
            await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        self._group.close()
        self._reading.close()


class PostgresBook:
    """Waiting rows go into one statement; claims and settles are one statement each.

    The insert is ours if `marked`, with the mark of its batch and the notification.
    """

    def __init__(self, links: list[Any], *, marked: bool) -> None:
        self._links = links
        inserting, self._claiming, self._settling, self._listening = links
        ours = raw_postgres.MarkedStatement(Delivery)
        assert ours.names == COLUMNS
        self._group = raw_postgres.GroupCommit(
            [inserting], ours if marked else raw_postgres.Statement(_POSTGRES_INSERT)
        )

    @classmethod
    async def open(cls, url: str, *, make: bool, marked: bool) -> PostgresBook:
        classes = OUTBOX_MODELS.all if make else ()
        return cls([await raw_postgres.connect(url, made) for made in (classes, (), (), ())], marked=marked)

    async def insert(self, delivery: Delivery) -> None:
        await self._group.put(delivery_row(delivery, delivery.created_at))

    async def claim(self, limit: int) -> list[Delivery]:
        # By an array, not a join: a planner without statistics would scan the table for the join.
        rows = await self._claiming.fetch(
            "UPDATE holdfast_deliveries SET \"nextAttemptAt\" = now() + interval '30 s',"
            " fence = fence + 1, owner = 'raw', status = 'sending' WHERE _key = any(array("
            " SELECT _key FROM holdfast_deliveries WHERE _key <> '/holdfast_deliveries__due'"
            ' AND "nextAttemptAt" <= now()'
            ' ORDER BY "nextAttemptAt", _key LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING _body', limit,
        )  # fmt: skip
        return [DECODE(body) for (body,) in rows]

    async def settle(self, keys: list[str]) -> None:
        await self._settling.execute(
            "UPDATE holdfast_deliveries SET \"nextAttemptAt\" = NULL, status = 'delivered',"
            ' "finishedAt" = now() WHERE _key = any($1::text[])', keys,
        )  # fmt: skip

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call back when other processes have put something out."""
        await self._listening.add_listener(CHANNEL, lambda *_: wake())

    async def close(self) -> None:
        await self._group.close()
        for link in self._links:
            await link.close()


Book = SqliteBook | PostgresBook


async def open_book(url: str, *, make: bool = True, marked: bool = True) -> Book:
    """Open the deliveries' table; `marked` inserts keep our promises."""
    if url.startswith("sqlite"):
        return SqliteBook(url, make=make)
    return await PostgresBook.open(url, make=make, marked=marked)


class RawLoop:
    """Sends what is put out and settles what ended since the last settle; 100 sends are in flight at most.

    What this process puts out is handed over in memory. With `claims` it sends what others put out instead.
    """

    def __init__(self, book: Book, sender: Sender, *, url: str, sign: Sign, claims: bool) -> None:
        self.book, self._sender, self._url, self._sign = book, sender, url, sign
        self._ended: list[str] = []
        self._any_ended = asyncio.Event()
        self._wake = asyncio.Event()
        self._waiting: asyncio.Queue[Delivery] = asyncio.Queue()
        self._unsent = 0
        self.settled = self._reported = 0
        loops = [self._settle(), *(self._send() for _ in range(BATCH))]
        if claims:
            loops += [self._claim(), self.book.watch(self._wake.set)]
        self._tasks = [asyncio.create_task(one) for one in loops]

    async def put_out(self, body: bytes) -> None:
        delivery = new_delivery(body)
        await self.book.insert(delivery)
        self._waiting.put_nowait(delivery)

    async def newly_settled(self) -> int:
        """The number settled since the last call."""
        before, self._reported = self._reported, self.settled
        return self._reported - before

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.book.close()

    async def _claim(self) -> None:
        while True:
            self._wake.clear()
            # Not for every free place: a claim is a commit.
            free = BATCH - self._unsent
            taken = await self.book.claim(free) if free >= BATCH // 2 else []
            self._unsent += len(taken)
            for delivery in taken:
                self._waiting.put_nowait(delivery)
            if not taken:
                await self._wake.wait()

    async def _send(self) -> None:
        while True:
            delivery = await self._waiting.get()
            headers = (
                ("content-type", "application/json"),
                *self._sign(delivery.event_id, int(time.time()), delivery.body),
            )
            await self._sender.send(OutgoingRequest("POST", self._url, headers, delivery.body, 5.0, 65_536))
            self._ended.append(delivery.id)
            self._any_ended.set()
            self._unsent -= 1
            if self._unsent == BATCH // 2:
                self._wake.set()

    async def _settle(self) -> None:
        while True:
            await self._any_ended.wait()
            self._any_ended.clear()
            keys, self._ended = self._ended, []
            await self.book.settle(keys)
            self.settled += len(keys)
