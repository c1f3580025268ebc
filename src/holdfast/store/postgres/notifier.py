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

    def __init__(self, schemas: frozenset[Schema[Any]], bells: ListenNotifier) -> None:
        self.schemas = schemas
        self._bells = bells
        self._rung = asyncio.Event()

    def ring(self) -> None:
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
        self._bells.take_down(self)


class ListenNotifier:
    """All bells of one engine, and the link on which the server tells of others' commits."""

    def __init__(
        self, links: ConnectionPool, shelves: Mapping[Schema[Any], PostgresTableMapping], *, name: str
    ) -> None:
        self._links, self._name = links, name
        self._by_table = {shelf.table: schema for schema, shelf in shelves.items()}
        self._hung: set[PostgresSubscription] = set()
        self._listener: asyncio.Task[None] | None = None

    def hang(self, schemas: Sequence[Schema[Any]]) -> PostgresSubscription:
        bell = PostgresSubscription(frozenset(schemas), self)
        self._hung.add(bell)
        if self._listener is None:
            listen = self._listen() if self._links.address.direct else self._poll()
            self._listener = asyncio.get_running_loop().create_task(listen)
        return bell

    def take_down(self, bell: PostgresSubscription) -> None:
        self._hung.discard(bell)

    def ring(self, touched: set[Schema[Any]]) -> None:
        for bell in self._hung:
            if not bell.schemas.isdisjoint(touched):
                bell.ring()

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
            self._listener = None

    async def _listen(self) -> None:
        """Listen for good; whatever was missed while the link was down is made up for by one ring."""
        again = False
        while True:
            link: Link | None = None
            try:
                link = await self._links.open(direct=True)
                lost = asyncio.Event()
                link.add_termination_listener(lambda _, lost=lost: lost.set())
                await link.add_listener(CHANNEL, self._told)
                if again:
                    self._ring_all()
                await lost.wait()
            except Exception:
                await asyncio.sleep(AGAIN_S)
            finally:
                if link is not None:
                    await shut(link)
            again = True

    async def _poll(self) -> None:
        """Behind a pooler nobody can tell us: look up now and then instead."""
        while True:
            await asyncio.sleep(POLL_S)
            self._ring_all()

    def _ring_all(self) -> None:
        for bell in self._hung:
            bell.ring()

    def _told(self, link: Any, pid: int, channel: str, payload: Any) -> None:
        sender, *tables = str(payload).split(" ")
        if sender == self._name:
            return
        if tables == ["*"]:
            self._ring_all()
        else:
            self.ring({self._by_table[name] for name in tables if name in self._by_table})
