"""PostgreSQL without Holdfast: what somebody would write by hand who cares for nothing but speed.

The tables and indexes are the same. No expectation is checked, no version is given out, a fault
in one document fails all that share its transaction.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import asyncpg
import msgspec

from bench.event import Delivery, Event
from holdfast.app import ddl
from holdfast.model import Document, schema_of
from holdfast.store import Write
from holdfast.store.catalog import Catalog
from holdfast.store.postgres.statement import BATCHES, PostgresTable, TableChange, patch_change, render
from holdfast.store.postgres.writer import MARKS_MAX
from holdfast.store.sql.blind_patch import blind_patch


def insert_rows(table: str, names: str, types: Sequence[str]) -> str:
    """A statement that inserts rows given as an array for each column."""
    arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(types, 1))
    return f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays})"


INSERT = insert_rows(
    "events", "_key, _version, kind, received_ms, subject, _body",
    ("text", "bigint", "text", "bigint", "text", "json"),
)  # fmt: skip
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


async def connect(url: str, classes: Iterable[type[Document]] = ()) -> Any:
    """Open a connection; make the tables of these classes as Holdfast would."""
    link = await asyncpg.connect(url, server_settings=_SETTINGS)
    if chosen := list(classes):
        for statement in ddl("postgres", Catalog(chosen)):
            await link.execute(statement)
    return link


_BATCH_NUMBERS = count(1 << 40)  # past those of a store that filled the same database


class Statement:
    """A statement as it is, which takes an array for each column."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def execute_rows(self, link: Any, rows: Sequence[tuple[Any, ...]]) -> None:
        await link.execute(self._text, *zip(*rows, strict=True))


class MarkedStatement:
    """The statement by which our writer inserts rows into one table, or makes patches like the one given.

    It writes the batch's mark, from which the outcome is known after a broken link, and notifies other
    processes. `names` are the columns of a row.
    """

    def __init__(self, kind: type[Document], like: Write | None = None) -> None:
        schema = schema_of(kind)
        mapping = PostgresTable(schema, Catalog([kind]).table(schema))
        self._note = f"{secrets.token_hex(4)} {mapping.table}"
        blind = None if like is None else blind_patch(like)
        self._change = (
            TableChange("try", mapping.table, mapping.names, mapping.arrays)
            if blind is None
            else patch_change(mapping, blind.group, tenanted=False)
        )
        self._change.rows = [(None,) * len(self._change.arrays)]
        self._single, _ = render([self._change], 0, "")
        self.names = tuple(self._change.names)

    async def execute(self, link: Any, *values: Any) -> None:
        """Change one row by the statement that was rendered before."""
        await self._execute(link, self._single, [next(_BATCH_NUMBERS), self._note, *values])

    async def execute_rows(self, link: Any, rows: Sequence[tuple[Any, ...]]) -> None:
        """Change many rows; how they are bound depends on them, as in the writer."""
        self._change.rows = list(rows)
        await self._execute(link, *render([self._change], next(_BATCH_NUMBERS), self._note))

    async def _execute(self, link: Any, text: str, values: Sequence[Any]) -> None:
        row = await link.fetchrow(text, *values)
        if row is None or row[0]:
            raise AssertionError("an id was taken")
        if values[0] % MARKS_MAX == 0:
            await link.execute(f"DELETE FROM {BATCHES} WHERE id <= $1", values[0])


class GroupCommit:
    """Tasks with a connection each insert all waiting rows in one statement."""

    def __init__(self, links: Sequence[Any], statement: Statement | MarkedStatement) -> None:
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
                await self._execute(link, taken)

    async def _execute(self, link: Any, taken: list[tuple[tuple[Any, ...], asyncio.Future[None]]]) -> None:
        try:
            await self._statement.execute_rows(link, [row for row, _ in taken])
        except Exception as fault:
            for _, done in taken:
                done.set_exception(fault)
        else:
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
