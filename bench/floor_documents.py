"""Documents on our table by the driver and by hand: the floor of one caller.

Our tables, indexes and documents and our promises in straight lines for one class, none of our code. A
new document's id and numbers are checked, and what was encoded is validated by decoding it; an update is a
patch of one field. Other tasks get a turn before a write, as those that commit in the same turn share a
transaction. On SQLite a
lone commit is made in place, has a version, looks whether another process has committed since, and is posted
in shared memory for other processes. On PostgreSQL a write is the statement that our writer sends, with the
mark that tells its outcome after a broken link and the notification of other processes.

Left out: whatever serves more than one class or more than one caller (looking up the class, tenants,
lifecycles, the queue and its futures, errors in words), and on SQLite checkpoints beside the commits.
"""

from __future__ import annotations

import asyncio
import mmap
import re
import time
from itertools import count
from math import isfinite
from operator import attrgetter
from typing import Any

import apsw
import msgspec

from bench import raw_postgres, raw_sqlite
from bench.event import Event, EventFields
from holdfast.model import schema_of
from holdfast.store import patch

_DECODE, _ENCODE = msgspec.json.Decoder(Event).decode, msgspec.json.Encoder().encode
_PAGE = (
    "SELECT _key, _version, _body, _patch FROM events WHERE kind = ?"
    " ORDER BY received_ms DESC, _key DESC LIMIT 20"
)
# The declared indexes are partial on PostgreSQL and matched by their condition.
_PAGE_POSTGRES = (
    "SELECT _key, _version, _body, _patch FROM events WHERE kind = $1 AND _key <> '/events__kind_received_ms'"
    ' ORDER BY received_ms DESC NULLS LAST, _key COLLATE "POSIX" DESC NULLS LAST LIMIT 20'
)
# Sets the same field each time, so that the patch before it need not be merged.
_PATCH = "UPDATE events SET _version = ?, _patch = ? WHERE _key = ?"


class _Weight(msgspec.Struct):
    weight: float


_VERSIONS = count(1 << 40)
_DECODE_WEIGHT = msgspec.json.Decoder(_Weight).decode
_IS_ID = re.compile(r"[A-Za-z0-9:@+=~-][A-Za-z0-9:@+=~._-]{0,120}").fullmatch


class _Rows:
    """Makes the rows of one class of events."""

    def __init__(self, cls: type[EventFields]) -> None:
        fields = [column.stored for column in schema_of(cls).columns]
        self.names = ("_key", "_version", *fields, "_body")
        self._values, self._decode = attrgetter(*fields), msgspec.json.Decoder(cls).decode
        table, marks = schema_of(cls).path.names[0], ", ".join("?" * len(self.names))
        self.insert = f"INSERT INTO {table} ({', '.join(self.names)}) VALUES ({marks})"

    def checked(self, event: EventFields, version: int) -> tuple[Any, ...]:
        if not (_IS_ID(event.id) and -(1 << 63) <= event.received_ms < 1 << 63 and isfinite(event.weight)):
            raise ValueError("refused")
        body = _ENCODE(event)
        return (event.id, version, *self._values(self._decode(body)), body.decode())


def _checked_patch(id: str, weight: float) -> str:
    if not (_IS_ID(id) and isfinite(weight)):
        raise ValueError("refused")
    body = _ENCODE(_Weight(weight))
    _DECODE_WEIGHT(body)
    return body.decode()


class FloorSqlite:
    """Writes and reads in place."""

    def __init__(self, link: apsw.Connection, cls: type[EventFields]) -> None:
        self._link, self._rows = link, _Rows(cls)
        self._board = memoryview(mmap.mmap(-1, 4_096)).cast("Q")
        self._data_version = link.data_version()

    async def create(self, event: EventFields) -> None:
        row = self._rows.checked(event, next(_VERSIONS))
        await asyncio.sleep(0)
        self._link.execute(self._rows.insert, row)
        self._announce()

    def _announce(self) -> None:
        self._data_version += 1
        if self._link.data_version() != self._data_version:
            raise ValueError("another process has committed")
        self._board[0] = time.monotonic_ns()

    async def update(self, id: str, weight: float) -> None:
        values = (next(_VERSIONS), _checked_patch(id, weight), id)
        await asyncio.sleep(0)
        self._link.execute(_PATCH, values)
        if self._link.changes() != 1:
            raise ValueError("there is no such document")
        self._announce()

    async def get(self, id: str) -> Event:
        row = self._link.execute(raw_sqlite.GET, (id,)).fetchone()
        assert row is not None
        return _DECODE(row[0])

    async def page(self, kind: str) -> list[Event]:
        return [_DECODE(body) for _, _, body, _ in self._link.execute(_PAGE, (kind,))]

    async def close(self) -> None:
        self._link.close()


class FloorPostgres:
    """One connection."""

    def __init__(self, link: Any, cls: type[EventFields]) -> None:
        self._link, self._rows = link, _Rows(cls)
        self._create = raw_postgres.MarkedStatement(cls)
        self._update = raw_postgres.MarkedStatement(cls, patch(cls, "any", changes={"weight": 0.0}))
        assert self._create.names == self._rows.names

    async def create(self, event: EventFields) -> None:
        await self._create.execute(self._link, *self._rows.checked(event, next(_VERSIONS)))

    async def update(self, id: str, weight: float) -> None:
        await self._update.execute(self._link, id, next(_VERSIONS), _checked_patch(id, weight))

    async def get(self, id: str) -> Event:
        return _DECODE(await self._link.fetchval(raw_postgres.GET, id))

    async def page(self, kind: str) -> list[Event]:
        return [_DECODE(row[2]) for row in await self._link.fetch(_PAGE_POSTGRES, kind)]

    async def close(self) -> None:
        await self._link.close()


async def open_floor(url: str, cls: type[EventFields] = Event) -> FloorSqlite | FloorPostgres:
    """The floor on a store of this class that was made and filled by ours."""
    if url.startswith("sqlite"):
        link = raw_sqlite.connect(url)
        link.execute("PRAGMA mmap_size = 0")
        # As long a log as that of the ways that filled their stores: a commit that extends it takes longer.
        link.execute(f"UPDATE {schema_of(cls).path.names[0]} SET _version = _version + 1")
        return FloorSqlite(link, cls)
    return FloorPostgres(await raw_postgres.connect(url), cls)
