"""Notifies of other processes' commits by LISTEN/NOTIFY."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from holdfast.model.schema import Schema
from holdfast.store.notifier import CommitNotifier
from holdfast.store.postgres.pool import ConnectionPool, PgConnection, close_connection
from holdfast.store.postgres.statement import CHANNEL
from holdfast.store.sql.table_mapping import TableMapping

RECONNECT_S = 0.2
POLL_S = 1.0


class ListenNotifier(CommitNotifier):
    """Listens on a connection of its own; behind a pooler without `direct` it polls instead."""

    def __init__(
        self, pool: ConnectionPool, mappings: Mapping[Schema[Any], TableMapping], *, name: str
    ) -> None:
        super().__init__()
        self._pool, self._name = pool, name
        self._by_table = {mapping.table: schema for schema, mapping in mappings.items()}
        self._listener: asyncio.Task[None] | None = None
        self._closed = False

    def listen(self) -> None:
        if self._listener is None and not self._closed:
            listen = self._listen() if self._pool.address.direct else self._poll()
            self._listener = asyncio.get_running_loop().create_task(listen)

    async def close(self) -> None:
        self._closed = True
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)

    async def _listen(self) -> None:
        """Listen for good; notifications missed while not listening are replaced by one to everybody.

        That includes the time between a subscription and the first LISTEN.
        """
        while True:
            connection: PgConnection | None = None
            try:
                connection = await self._pool.open(direct=True)
                lost = asyncio.Event()
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                await connection.add_listener(CHANNEL, self._receive)
                self.notify_all()
                await lost.wait()
            except Exception:
                await asyncio.sleep(RECONNECT_S)
            finally:
                if connection is not None:
                    await close_connection(connection)

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            self.notify_all()

    def _receive(self, connection: Any, pid: int, channel: str, payload: Any) -> None:
        sender, *tables = str(payload).split(" ")
        if sender == self._name:
            return
        if tables == ["*"]:
            self.notify_all()
        else:
            self.notify({self._by_table[name] for name in tables if name in self._by_table})
