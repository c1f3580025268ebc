"""An outbox without Holdfast: the loop somebody would write by hand who cares for nothing but speed.

Group commit, batch claim, sign, send, batch settle, on the same tables and indexes and by the same
sender. No expectation is checked, no attempt is recorded, no limit is kept, nothing is ever tried again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

import apsw
import msgspec

from bench.raw_postgres import connect
from holdfast import ids
from holdfast.kit.outbox import Delivery, Sign
from holdfast.net import OutgoingRequest, Sender

BATCH = 100
LEASE_US = 30_000_000
ENCODE = msgspec.json.Encoder().encode
DECODE = msgspec.json.Decoder(Delivery).decode
COLUMNS = ("_key", "_version", "tenantId", "status", "createdAt", "endpointId", "eventId", "finishedAt",
           "nextAttemptAt", "fence", "owner", "_body")  # fmt: skip


def new_delivery(body: bytes) -> Delivery:
    now, event_id = datetime.now(UTC), ids.ulid()
    return Delivery(
        id=f"{event_id}~ep", event_id=event_id, endpoint_id="ep", event_type="thing.made", body=body,
        occurred_at=now, created_at=now, next_attempt_at=now,
    )  # fmt: skip


class SqliteBook:
    """A thread that commits all waiting rows in one transaction and answers their callers."""

    def __init__(self, path: str) -> None:
        self._link = apsw.Connection(path)
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "cache_size = -65536",
                       "mmap_size = 268435456", "wal_autocheckpoint = 4000"):  # fmt: skip
            self._link.execute(f"PRAGMA {pragma}")
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    async def insert(self, delivery: Delivery) -> None:
        now_us = time.time_ns() // 1_000
        row = (delivery.id, 1, "-", "pending", now_us, "ep", delivery.event_id, None, now_us, 0, None,
               ENCODE(delivery).decode())  # fmt: skip
        marks = ", ".join("?" * len(COLUMNS))
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        sql = f"INSERT INTO holdfast_deliveries ({names}) VALUES ({marks})"
        await self._do(lambda: self._link.execute(sql, row))

    async def claim(self) -> list[Delivery]:
        now_us = time.time_ns() // 1_000
        sql = (
            'UPDATE holdfast_deliveries SET "nextAttemptAt" = ?, fence = fence + 1, owner = ?,'
            " status = 'sending' WHERE _key IN (SELECT _key FROM holdfast_deliveries WHERE"
            ' "nextAttemptAt" <= ? ORDER BY "nextAttemptAt", _key LIMIT ?) RETURNING _body'
        )
        words = (now_us + LEASE_US, "raw", now_us, BATCH)
        rows = await self._do(lambda: self._link.execute(sql, words).fetchall())
        return [DECODE(body) for (body,) in rows]

    async def settle(self, keys: list[str]) -> None:
        sql = (
            "UPDATE holdfast_deliveries SET \"nextAttemptAt\" = NULL, status = 'delivered',"
            ' "finishedAt" = ? WHERE _key IN (SELECT value FROM json_each(?))'
        )
        words = (time.time_ns() // 1_000, ENCODE(keys).decode())
        await self._do(lambda: self._link.execute(sql, words))

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)
        self._link.close()

    async def _do(self, work: Callable[[], Any]) -> Any:
        done = self._loop.create_future()
        self._queue.put((work, done))
        return await done

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            taken = [first]
            while not self._queue.empty() and len(taken) < 1_000:
                item = self._queue.get()
                if item is None:
                    return
                taken.append(item)
            self._link.execute("BEGIN IMMEDIATE")
            answers = [(done, work()) for work, done in taken]
            self._link.execute("COMMIT")
            self._loop.call_soon_threadsafe(_answer, answers)


def _answer(answers: list[tuple[asyncio.Future[Any], Any]]) -> None:
    for done, answer in answers:
        done.set_result(answer)


class PostgresBook:
    """Waiting rows go into one statement; claims and settles are one statement each."""

    def __init__(self, links: list[Any]) -> None:
        self._inserting, self._claiming, self._settling = links
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[tuple[Any, ...], asyncio.Future[None]]] = []
        self._filled = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @classmethod
    async def open(cls, url: str) -> PostgresBook:
        return cls([await connect(url) for _ in range(3)])

    async def insert(self, delivery: Delivery) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        row = (delivery.id, 1, "-", "pending", delivery.created_at, "ep", delivery.event_id, None,
               delivery.created_at, 0, None, ENCODE(delivery).decode())  # fmt: skip
        self._waiting.append((row, done))
        self._filled.set()
        await done

    async def claim(self) -> list[Delivery]:
        # By an array, not a join: a planner without statistics would scan the table for the join.
        rows = await self._claiming.fetch(
            "UPDATE holdfast_deliveries SET \"nextAttemptAt\" = now() + interval '30 s',"
            " fence = fence + 1, owner = 'raw', status = 'sending' WHERE _key = any(array("
            " SELECT _key FROM holdfast_deliveries WHERE _key <> '/holdfast_deliveries__due'"
            ' AND "nextAttemptAt" <= now()'
            ' ORDER BY "nextAttemptAt", _key LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING _body', BATCH,
        )  # fmt: skip
        return [DECODE(body) for (body,) in rows]

    async def settle(self, keys: list[str]) -> None:
        await self._settling.execute(
            "UPDATE holdfast_deliveries SET \"nextAttemptAt\" = NULL, status = 'delivered',"
            ' "finishedAt" = now() WHERE _key = any($1::text[])', keys,
        )  # fmt: skip

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for link in (self._inserting, self._claiming, self._settling):
            await link.close()

    async def _run(self) -> None:
        types = ("text", "bigint", "text", "text", "timestamptz", "text", "text", "timestamptz",
                 "timestamptz", "bigint", "text", "json")  # fmt: skip
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        marks = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(types, 1))
        sql = f"INSERT INTO holdfast_deliveries ({names}) SELECT * FROM unnest({marks})"
        while True:
            await self._filled.wait()
            # Callers that were just answered may ask again before the batch is closed.
            await asyncio.sleep(0)
            taken, self._waiting = self._waiting, []
            self._filled.clear()
            await self._inserting.execute(sql, *zip(*(row for row, _ in taken), strict=True))
            for _, done in taken:
                done.set_result(None)


Book = SqliteBook | PostgresBook


class RawLoop:
    """Claims while sends are in flight; settles what ended since the last settle."""

    def __init__(self, book: Book, sender: Sender, *, url: str, sign: Sign) -> None:
        self.book, self._sender, self._url, self._sign = book, sender, url, sign
        self._ended: list[str] = []
        self._any_ended = asyncio.Event()
        self._wake = asyncio.Event()
        self.settled = self._reported = 0
        self._tasks = [asyncio.create_task(self._dispatch()), asyncio.create_task(self._settle())]

    async def put_out(self, body: bytes) -> None:
        await self.book.insert(new_delivery(body))
        self._wake.set()

    async def newly_settled(self) -> int:
        """The number settled since the last call."""
        before, self._reported = self._reported, self.settled
        return self._reported - before

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.book.close()

    async def _dispatch(self) -> None:
        while True:
            self._wake.clear()
            taken = await self.book.claim()
            if taken:
                await asyncio.gather(*(self._send(delivery) for delivery in taken))
            else:
                await self._wake.wait()

    async def _send(self, delivery: Delivery) -> None:
        headers = (
            ("content-type", "application/json"),
            *self._sign(delivery.event_id, int(time.time()), delivery.body),
        )
        await self._sender.send(OutgoingRequest("POST", self._url, headers, delivery.body, 5.0, 65_536))
        self._ended.append(delivery.id)
        self._any_ended.set()

    async def _settle(self) -> None:
        while True:
            await self._any_ended.wait()
            self._any_ended.clear()
            keys, self._ended = self._ended, []
            await self.book.settle(keys)
            self.settled += len(keys)
