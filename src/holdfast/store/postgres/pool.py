"""Links to the server: opened the same way everywhere, kept for readers, replaced when they break."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import asyncpg

from holdfast.errors import ConfigError, StoreUnavailableError
from holdfast.store.postgres.address import PostgresAddress
from holdfast.store.postgres.faults import explain, is_away, is_turn_lost

T = TypeVar("T")
Link: TypeAlias = "asyncpg.Connection[Any]"

# Every question has its index, so a plan that reads a whole table or sorts it is never the right one,
# whatever the statistics say before the first ANALYZE.
_SETTINGS = {"jit": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "enable_sort": "off"}
_BEGIN = "BEGIN; " + "; ".join(f"SET LOCAL {name} = {value}" for name, value in _SETTINGS.items())
_CONNECT_S = 5.0
_BACK_OFF_S_MAX = 0.5


class RetryDeadline:
    """How long one caller waits for a server that is away, trying ever less often."""

    def __init__(self, total_s: float) -> None:
        self._end = time.monotonic() + total_s
        self._pause_s = 0.01

    @property
    def over(self) -> bool:
        return time.monotonic() >= self._end

    async def pause(self) -> None:
        await asyncio.sleep(random.uniform(0.5, 1.0) * self._pause_s)
        self._pause_s = min(_BACK_OFF_S_MAX, self._pause_s * 2)


def unavailable(fault: BaseException) -> StoreUnavailableError:
    return StoreUnavailableError(f"PostgreSQL can't be reached: {str(fault) or type(fault).__name__}")


class ConnectionPool:
    """Opens links; lends a bounded number of them to readers."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self._idle: list[Link] = []
        self._free = asyncio.Semaphore(address.readers)
        self._closed = False

    async def open(self, *, direct: bool = False) -> Link:
        """A new link, ready for documents; raises what the driver raises."""
        address = self.address
        try:
            connection = await asyncpg.connect(
                address.direct if direct else address.dsn,
                timeout=_CONNECT_S,
                command_timeout=address.timeout_s,
                statement_cache_size=0 if address.pooled and not direct else 500,
                server_settings={} if address.pooled else {"application_name": "holdfast", **_SETTINGS},
            )
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as fault:
            raise ConfigError(f"PostgreSQL refuses the URL: {fault}") from None
        try:
            await self.whole(connection, _speak_json)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def whole(self, connection: Link, work: Callable[[Link], Awaitable[T]]) -> T:
        """Do work that must stay on one server behind a pooler: there, inside one transaction."""
        return await (self.transact(connection, work) if self.address.pooled else work(connection))

    async def transact(self, connection: Link, work: Callable[[Link], Awaitable[T]]) -> T:
        """Do work inside a transaction, with settings that end with it."""
        await connection.execute(_BEGIN if self.address.pooled else "BEGIN")
        try:
            answer = await work(connection)
        except Exception:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
            raise
        await connection.execute("COMMIT")
        return answer

    async def read(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Ask on a link of the pool; on a new one when it broke. For what may be asked twice."""
        async with self._free:
            patience: RetryDeadline | None = None
            while True:
                if self._closed:
                    raise StoreUnavailableError("the store is closed")
                try:
                    return await self._lend(work)
                except Exception as fault:
                    patience = patience or RetryDeadline(self.address.patience_s)
                    if not (is_away(fault) or is_turn_lost(fault)):
                        raise explain(fault) from fault
                    if patience.over:
                        raise unavailable(fault) from fault
                await patience.pause()

    async def _lend(self, work: Callable[[Link], Awaitable[T]]) -> T:
        connection = self._idle.pop() if self._idle else await self.open()
        try:
            answer = await self.whole(connection, work)
        except BaseException as fault:
            # A link on which an answer may still be on its way is good for nothing.
            if isinstance(fault, asyncpg.PostgresError) and not is_away(fault) and not connection.is_closed():
                self._idle.append(connection)
            else:
                connection.terminate()
            raise
        if self._closed:
            connection.terminate()
        else:
            self._idle.append(connection)
        return answer

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            await shut(self._idle.pop())


async def shut(connection: Link) -> None:
    """Say goodbye to the server where it still listens."""
    try:
        await connection.close(timeout=1)
    except Exception:
        connection.terminate()


async def _speak_json(connection: Link) -> None:
    """Bodies go over the wire as the bytes they are."""
    await connection.set_type_codec(
        "json", schema="pg_catalog", encoder=_same, decoder=_same, format="binary"
    )


def _same(body: bytes) -> bytes:
    return body
