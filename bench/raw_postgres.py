"""PostgreSQL without Holdfast: what somebody would write by hand who cares for nothing but speed.

The tables and indexes are the same. No expectation is checked, no version is given out, a fault
in one document fails all that share its transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import msgspec

from bench.event import Delivery, Event
from holdfast.app import ddl
from holdfast.store.catalog import Catalog

INSERT = (
    "INSERT INTO events (_key, _version, kind, received_ms, subject, _body)"
    " SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::text[], $6::json[])"
)
GET = "SELECT _body FROM events WHERE _key = $1"
# The tables are the same; partial indexes are matched by their condition.
_BY_DUE = "due <= $3 AND _key <> '/deliveries__due'"
CLAIM = (
    "UPDATE deliveries AS d SET due = $1, fence = fence + 1, owner = $2, status = 'sending' FROM"
    f" (SELECT _key FROM deliveries WHERE {_BY_DUE} ORDER BY due, _key LIMIT $4 FOR UPDATE SKIP LOCKED) AS p"
    " WHERE d._key = p._key RETURNING d._key, d.fence, d._body"
)
SETTLE = (
    "UPDATE deliveries AS d SET due = NULL, status = 'delivered' FROM"
    " unnest($1::text[], $2::bigint[]) AS taken(k, f) WHERE d._key = taken.k AND d.fence = taken.f"
)


# Growing tables have no statistics yet: without these settings the planner would scan them.
_SETTINGS = {"jit": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "enable_sort": "off"}


async def connect(url: str) -> Any:
    return await asyncpg.connect(url, server_settings=_SETTINGS)


async def make_tables(url: str) -> None:
    link = await connect(url)
    for statement in ddl("postgres", Catalog([Event, Delivery])):
        await link.execute(statement)
    await link.close()


class GroupCommit:
    """Tasks with a connection each insert all waiting rows in one statement."""

    def __init__(self, links: Sequence[Any], statement: str = INSERT) -> None:
        self._statement = statement
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[tuple[Any, ...], asyncio.Future[None]]] = []
        self._filled = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run(link)) for link in links]

    async def insert(self, event: Event) -> None:
        body = msgspec.json.encode(event).decode()
        await self.put((event.id, 1, event.kind, event.received_ms, event.subject, body))

    async def put(self, row: tuple[Any, ...]) -> None:
        done: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((row, done))
        self._filled.set()
        await done

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, link: Any) -> None:
        while True:
            await self._filled.wait()
            # Callers that were just answered may ask again before the batch is closed.
            await asyncio.sleep(0)
            taken, self._waiting = self._waiting, []
            self._filled.clear()
            if taken:
                await link.execute(self._statement, *zip(*(row for row, _ in taken), strict=True))
                for _, done in taken:
                    done.set_result(None)


_DECODE = msgspec.json.Decoder(Delivery).decode


async def claim(link: Any, now: datetime, limit: int) -> list[tuple[str, int, Delivery]]:
    """One statement, one commit; the documents decoded, as a worker needs them."""
    rows = await link.fetch(CLAIM, now + timedelta(seconds=60), "worker", now, limit)
    return [(key, fence, _DECODE(body)) for key, fence, body in rows]


async def settle(link: Any, taken: Sequence[tuple[str, int, Delivery]]) -> None:
    """One statement, one commit; lost leases are left alone."""
    await link.execute(SETTLE, [key for key, _, _ in taken], [fence for _, fence, _ in taken])
