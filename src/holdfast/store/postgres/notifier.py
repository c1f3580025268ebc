"""Bells: rung at once by this process's commits, and by the server's notifications for others'."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.model.schema import Schema
from holdfast.store.postgres.pool import ConnectionPool, Link, shut
from holdfast.store.postgres.statement import CHANNEL
from holdfast.store.postgres.table_mapping import PostgresTableMapping

AGAIN_S = 0.2
POLL_S = 1.0


class PostgresSubscription:
    """Rings after commits to its collections; a hint, so a ring too many is fine."""

    def __init__(self, schemas: frozenset[Schema[Any]], subscriptions: ListenNotifier) -> None:
        self.schemas = schemas
        self._notifier = subscriptions
        self._rung = asyncio.Event()

    def notify(self) -> None:
        self._rung.set()

    async def wait(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._rung.wait()
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def close(self) -> None:
        self._notifier.unsubscribe(self)


class ListenNotifier:
    """All bells of one engine, and the link on which the server tells of others' commits."""

    def __init__(
        self, pool: ConnectionPool, mappings: Mapping[Schema[Any], PostgresTableMapping], *, name: str
    ) -> None:
        self._pool, self._name = pool, name
        self._by_table = {mapping.table: schema for schema, mapping in mappings.items()}
        self._hung: set[PostgresSubscription] = set()
        self._listener: asyncio.Task[None] | None = None

    def subscribe(self, schemas: Sequence[Schema[Any]]) -> PostgresSubscription:
        subscription = PostgresSubscription(frozenset(schemas), self)
        self._hung.add(subscription)
        if self._listener is None:
            listen = self._listen() if self._pool.address.direct else self._poll()
            self._listener = asyncio.get_running_loop().create_task(listen)
        return subscription

    def unsubscribe(self, subscription: PostgresSubscription) -> None:
        self._hung.discard(subscription)

    def notify(self, touched: set[Schema[Any]]) -> None:
        for subscription in self._hung:
            if not subscription.schemas.isdisjoint(touched):
                subscription.notify()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None

    async def _listen(self) -> None:
        """Listen for good; whatever was missed while the link was down is made up for by one ring."""
        again = False
        while True:
            connection: Link | None = None
            try:
                connection = await self._pool.open(direct=True)
                lost = asyncio.Event()
                connection.add_termination_listener(lambda _, lost=lost: lost.set())
                await connection.add_listener(CHANNEL, self._told)
                if again:
                    self._ring_all()
                await lost.wait()
            except Exception:
                await asyncio.sleep(AGAIN_S)
            finally:
                if connection is not None:
                    await shut(connection)
            again = True

    async def _poll(self) -> None:
        """Behind a pooler nobody can tell us: look up now and then instead."""
        while True:
            await asyncio.sleep(POLL_S)
            self._ring_all()

    def _ring_all(self) -> None:
        for subscription in self._hung:
            subscription.notify()

    def _told(self, connection: Any, pid: int, channel: str, payload: Any) -> None:
        sender, *tables = str(payload).split(" ")
        if sender == self._name:
            return
        if tables == ["*"]:
            self._ring_all()
        else:
            self.notify({self._by_table[name] for name in tables if name in self._by_table})
