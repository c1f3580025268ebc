"""The deliveries' table on PostgreSQL by hand; see `floor_outbox` for what is kept.

Inserts and settlements are the statements that our writer sends, rendered by the same module: they mark their
batch, which tells its outcome after a broken link, name what was not made, and notify other processes.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from bench import raw_postgres
from bench.floor_outbox import DECODE, LEASE_S, OWNER, FloorDelivery, Settlement
from holdfast.kit.outbox import OUTBOX_MODELS
from holdfast.store.postgres.statement import BATCHES, CHANNEL, SEQUENCE, TableChange, render
from holdfast.store.postgres.writer import MARKS_MAX

_LEASE = timedelta(seconds=LEASE_S)
VERSIONS = 8_192
_TABLE = "holdfast_deliveries"
_NAMES = ("_key", "_version", "tenantId", "finishedAt", "status", "createdAt", "endpointId", "eventId",
          "nextAttemptAt", "fence", "owner", "_body")  # fmt: skip
_ARRAYS = ("text[]", "bigint[]", "text[]", "timestamptz[]", "text[]", "timestamptz[]", "text[]", "text[]",
           "timestamptz[]", "bigint[]", "text[]", "json[]")  # fmt: skip
_SETTLED_NAMES = ("_key", "_version", "finishedAt", "status", "nextAttemptAt", "owner", "_patch", "fence")
_SETTLED_ARRAYS = ("text[]", "bigint[]", "timestamptz[]", "text[]", "timestamptz[]", "text[]", "json[]",
                   "bigint[]")  # fmt: skip
# By an array, not a join: a planner without statistics would scan the table for the join.
_CLAIM = (
    f"UPDATE {_TABLE} SET \"nextAttemptAt\" = $1, fence = fence + 1, owner = $2, status = 'sending',"
    f" _version = nextval('{SEQUENCE}') WHERE _key = any(array("
    f" SELECT _key FROM {_TABLE} WHERE _key <> '/holdfast_deliveries__due'"
    ' AND "nextAttemptAt" <= $3'
    ' ORDER BY "nextAttemptAt", _key LIMIT $4 FOR UPDATE SKIP LOCKED)) RETURNING fence, _body'
)


class FloorPostgres:
    """One connection writes all that waits by one statement; another claims."""

    def __init__(self, links: list[Any], *, owner: str | None) -> None:
        self._writing, self._claiming, self._listening = links
        self._owner = owner
        self._status, self._fence = ("sending", 1) if owner else ("pending", 0)
        self._loop = asyncio.get_running_loop()
        self._rows: list[tuple[Any, ...]] = []
        self._callers: list[asyncio.Future[None]] = []
        self._settlements: list[tuple[Any, ...]] = []
        self._note = f"{secrets.token_hex(6)} {_TABLE}"
        self._version = self._reserved = self._first_mark = self.settled = 0
        self._filled = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    @classmethod
    async def open(cls, url: str, *, make: bool, owner: str | None) -> FloorPostgres:
        classes = OUTBOX_MODELS.all if make else ()
        links = [await raw_postgres.connect(url, made) for made in (classes, (), ())]
        for link in links[:2]:
            await link.set_type_codec(
                "json", schema="pg_catalog", encoder=_same, decoder=_same, format="binary"
            )
        return cls(links, owner=owner)

    def insert(self, delivery: FloorDelivery, body: bytes) -> asyncio.Future[None]:
        done: asyncio.Future[None] = self._loop.create_future()
        self._version += 1
        self._rows.append((
            delivery.id, self._version, "-", None, self._status, delivery.created_at, "ep",
            delivery.event_id, delivery.next_attempt_at, self._fence, self._owner, body,
        ))  # fmt: skip
        self._callers.append(done)
        self._filled.set()
        return done

    def settle(self, settlement: Settlement) -> None:
        key, patch, finished_at, fence = settlement
        self._version += 1
        self._settlements.append((key, self._version, finished_at, "delivered", None, None, patch, fence))
        self._filled.set()

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            # Callers that were just answered may ask again before the batch is closed.
            await asyncio.sleep(0)
            self._filled.clear()
            rows, callers, settlements = self._rows, self._callers, self._settlements
            self._rows, self._callers, self._settlements = [], [], []
            try:
                await self._execute(rows, settlements)
            except Exception as fault:
                for caller in callers:
                    caller.set_exception(fault)
                raise
            for caller in callers:
                caller.set_result(None)
            self.settled += len(settlements)

    async def _execute(self, rows: list[tuple[Any, ...]], settlements: list[tuple[Any, ...]]) -> None:
        if self._version + 1_000 > self._reserved:
            self._version = await self._writing.fetchval(f"SELECT nextval('{SEQUENCE}')")
            self._reserved = self._version + VERSIONS
        changes = []
        if rows:
            changes.append(TableChange("try", _TABLE, _NAMES, _ARRAYS))
            changes[-1].rows = rows
        if settlements:
            where = ['t."_patch" IS NULL', "t.\"status\" IN ('sending')"]
            changes.append(
                TableChange("patch", _TABLE, _SETTLED_NAMES, _SETTLED_ARRAYS, where=where, fields=("status",))
            )
            changes[-1].rows = settlements
        self._version += 1
        row = await self._writing.fetchrow(*_with_values(render(changes, self._version, self._note)))
        if row is None or row[0]:
            raise AssertionError("an id was taken, or a lease was lost")
        self._first_mark = self._first_mark or self._version
        if self._version - self._first_mark > MARKS_MAX * 200:
            text = f"DELETE FROM {BATCHES} WHERE id BETWEEN $1 AND $2"
            await self._writing.execute(text, self._first_mark, self._version)
            self._first_mark = 0

    async def claim(self, limit: int) -> list[FloorDelivery]:
        now = datetime.now(UTC)
        claimed = []
        for fence, body in await self._claiming.fetch(_CLAIM, now + _LEASE, OWNER, now, limit):
            delivery = DECODE(body)
            delivery.fence, delivery.owner, delivery.status = fence, OWNER, "sending"
            claimed.append(delivery)
        return claimed

    async def watch(self, wake: Callable[[], None]) -> None:
        """Call back after commits of other processes."""
        await self._listening.add_listener(CHANNEL, lambda *_: wake())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for link in (self._writing, self._claiming, self._listening):
            await link.close()


def _with_values(statement: tuple[str, list[Any]]) -> list[Any]:
    return [statement[0], *statement[1]]


def _same(body: bytes) -> bytes:
    return body
