"""An outbox for speed alone: a table of three columns of its own, one process, group commit, batch settle.

Nothing is checked, claimed, fenced, counted or tried again; rows wait for the dispatcher in memory too, so
that it never has to read one. Signing, sender and durability are those of ours.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench import raw_postgres, raw_sqlite
from holdfast import ids
from holdfast.kit.outbox import Sign
from holdfast.net import OutgoingRequest, Sender

_MAKE = "CREATE TABLE events (id TEXT PRIMARY KEY, body {}, done INTEGER NOT NULL DEFAULT 0)"
SENDS_MAX = 100


class MinimalOutbox:
    """Stores events and sends them."""

    def __init__(self, sender: Sender, *, url: str, sign: Sign) -> None:
        self._sender, self._url, self._sign = sender, url, sign
        self._waiting: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        self._settled = self._told = 0

    async def open(self, url: str) -> None:
        """Make the table, and start what inserts, sends and settles."""
        if url.startswith("sqlite"):
            link = raw_sqlite.connect(url)
            link.execute(_MAKE.format("BLOB"))
            self._store: Any = raw_sqlite.GroupCommit(link, "INSERT INTO events (id, body) VALUES (?, ?)")
            # One connection writes all: its thread takes both kinds of rows.
            self._marks: Any = self._store
        else:
            links = [await raw_postgres.connect(url) for _ in range(2)]
            await links[0].execute(_MAKE.format("BYTEA"))
            insert = "INSERT INTO events (id, body) SELECT * FROM unnest($1::text[], $2::bytea[])"
            mark = "UPDATE events SET done = 1 WHERE id = any($1::text[])"
            self._store = raw_postgres.GroupCommit(links[:1], raw_postgres.Statement(insert))
            self._marks = raw_postgres.GroupCommit(links[1:], raw_postgres.Statement(mark))
        self._sqlite = url.startswith("sqlite")
        self._tasks = [asyncio.create_task(self._send()) for _ in range(SENDS_MAX)]

    async def put_out(self, body: bytes) -> None:
        id = ids.ulid()
        await self._store.put((id, body))
        self._waiting.put_nowait((id, body))

    async def newly_settled(self) -> int:
        """The number marked as done since the last call."""
        before, self._told = self._told, self._settled
        return self._told - before

    async def _send(self) -> None:
        while True:
            id, body = await self._waiting.get()
            headers = (("content-type", "application/json"), *self._sign(id, int(time.time()), body))
            await self._sender.send(OutgoingRequest("POST", self._url, headers, body, 5.0, 65_536))
            await self._mark(id)
            self._settled += 1

    async def _mark(self, id: str) -> None:
        if self._sqlite:
            await self._marks.put((id,), "UPDATE events SET done = 1 WHERE id = ?")
        else:
            await self._marks.put((id,))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._sqlite:
            self._store.close()
        else:
            await asyncio.gather(self._store.close(), self._marks.close())
