"""Deliveries put into our table without Holdfast, by somebody who cares for nothing but speed.

Group commit on the same tables and indexes. Nothing is checked, validated or claimed. The outbox by hand
under our promises is `floor_outbox`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import cache
from typing import Any

import msgspec

from bench import raw_postgres, raw_sqlite
from holdfast import ids
from holdfast.kit.outbox import OUTBOX_MODELS, Delivery

ENCODE = msgspec.json.Encoder().encode
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

    def __init__(self, url: str) -> None:
        link = raw_sqlite.connect(url, OUTBOX_MODELS.all)
        self._group = raw_sqlite.GroupCommit(link, sqlite_insert(1))

    async def insert(self, delivery: Delivery) -> None:
        await self._group.put(delivery_row(delivery, time.time_ns() // 1_000))

    async def close(self) -> None:
        self._group.close()


class PostgresBook:
    """A task that inserts all waiting rows by one statement."""

    def __init__(self, link: Any) -> None:
        self._link = link
        self._group = raw_postgres.GroupCommit([link], raw_postgres.Statement(_POSTGRES_INSERT))

    async def insert(self, delivery: Delivery) -> None:
        await self._group.put(delivery_row(delivery, delivery.created_at))

    async def close(self) -> None:
        await self._group.close()
        await self._link.close()


Book = SqliteBook | PostgresBook


async def open_book(url: str) -> Book:
    """Make the deliveries' table and open it."""
    if url.startswith("sqlite"):
        return SqliteBook(url)
    return PostgresBook(await raw_postgres.connect(url, OUTBOX_MODELS.all))
