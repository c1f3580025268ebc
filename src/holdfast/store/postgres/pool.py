"""Connections to the server: opened the same way everywhere, pooled for readers, replaced when broken."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias, TypeVar

import asyncpg

from holdfast.backoff import BackOff
from holdfast.errors import ConfigError, StoreUnavailableError
from holdfast.store.postgres.address import PostgresAddress
from holdfast.store.postgres.faults import explain, is_disconnected, is_retryable
from holdfast.store.postgres.link_probe import LinkProbe

T = TypeVar("T")
PgConnection: TypeAlias = "asyncpg.Connection[Any]"

# Every query has its index, so a plan that reads a table sequentially or sorts it is never the right one,
# whatever the statistics say before the first ANALYZE.
_SETTINGS = {"jit": "off", "enable_seqscan": "off", "enable_bitmapscan": "off", "enable_sort": "off"}
_BEGIN = "BEGIN; " + "; ".join(f"SET LOCAL {name} = {value}" for name, value in _SETTINGS.items())
_CONNECT_S = 5.0
_BACK_OFF = BackOff(first_s=0.01, wait_s_max=0.5, jitter=0.5)


class RetryDeadline:
    """How long one caller waits for an unreachable server, with exponential back-off."""

    def __init__(self, total_s: float, *, since_s: float | None = None) -> None:
        self._end = (time.monotonic() if since_s is None else since_s) + total_s
        self._pauses = 0

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end

    async def pause(self) -> None:
        self._pauses += 1
        await asyncio.sleep(_BACK_OFF.wait_s(self._pauses))


def unavailable(fault: BaseException) -> StoreUnavailableError:
    return StoreUnavailableError(
        f"PostgreSQL can't be reached: {str(fault) or type(fault).__name__}; retry later"
    )


class ConnectionPool:
    """Opens connections; lends a bounded number of them to readers."""

    def __init__(self, address: PostgresAddress) -> None:
        self.address = address
        self._idle: list[PgConnection] = []
        self._readers = asyncio.Semaphore(address.readers)
        self._closed = False
        self._link_probe = LinkProbe(self.open, limit_s=address.timeout_s)

    async def open(self, *, direct: bool = False, probed: bool = False) -> PgConnection:
        """Open a connection set up for documents; raises what the driver raises.

        Where `probed`, all statements are to be `probed`: the driver limits no time itself.
        """
        address = self.address
        limited = address.pooled or not probed
        try:
            connection = await asyncpg.connect(
                address.direct if direct else address.dsn,
                timeout=_CONNECT_S,
                command_timeout=address.timeout_s if limited else None,
                statement_cache_size=0 if address.pooled and not direct else 500,
                server_settings={} if address.pooled else {"application_name": "holdfast", **_SETTINGS},
            )
        except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as fault:
            raise ConfigError(
                f"PostgreSQL refuses the connection: {fault}; check user, password and database"
            ) from None
        except asyncpg.ProtocolViolationError as fault:
            if "startup parameter" not in str(fault):
                raise
            raise ConfigError(
                f"the server is a pooler that takes no session settings ({fault}); add ?pooler=transaction "
                "to the store's URL, and &direct=HOST:PORT of the server itself for prompt notifications"
            ) from None
        try:
            async with asyncio.timeout(_CONNECT_S):
                await self.pinned(connection, _pass_json_through)
        except BaseException:
            connection.terminate()
            raise
        return connection

    def probed(self, connection: PgConnection) -> AbstractContextManager[None]:
        """Limit the time, and end the connection within seconds once its link turns out to be dead."""
        # Behind a pooler, a session of the server has no link of its own.
        return nullcontext() if self.address.pooled else self._link_probe.statement(connection)

    async def pinned(self, connection: PgConnection, work: Callable[[PgConnection], Awaitable[T]]) -> T:
        """Do work that must stay on one server connection: behind a pooler, inside a transaction."""
        return await (self.transact(connection, work) if self.address.pooled else work(connection))

    async def fetchrow_on(self, connection: PgConnection, text: str, values: Sequence[Any]) -> Any:
        """Execute one statement on a connection of the caller's; return its first row or None."""
        if self.address.pooled:
            return await self.transact(connection, lambda connection: connection.fetchrow(text, *values))
        with self._link_probe.statement(connection):
            return await connection.fetchrow(text, *values)

    async def transact(self, connection: PgConnection, work: Callable[[PgConnection], Awaitable[T]]) -> T:
        """Do work inside a transaction, with settings that end with it."""
        await connection.execute(_BEGIN if self.address.pooled else "BEGIN")
        try:
            result = await work(connection)
        except Exception:
            if not connection.is_closed():
                await connection.execute("ROLLBACK")
            raise
        await connection.execute("COMMIT")
        return result

    async def read(self, work: Callable[[PgConnection], Awaitable[T]]) -> T:
        """Run idempotent work on a pooled connection, again on a new one when that broke."""
        await self._readers.acquire()
        try:
            deadline: RetryDeadline | None = None
            while True:
                if self._closed:
                    raise StoreUnavailableError("the store is closed")
                try:
                    return await self._lend(work)
                except Exception as fault:
                    deadline = deadline or RetryDeadline(self.address.retry_s)
                    if not (is_disconnected(fault) or is_retryable(fault)):
                        raise explain(fault) from fault
                    if deadline.passed:
                        raise unavailable(fault) from fault
                await deadline.pause()
        finally:
            self._readers.release()

    async def _lend(self, work: Callable[[PgConnection], Awaitable[T]]) -> T:
        connection = self._idle.pop() if self._idle else await self.open(probed=True)
        try:
            if self.address.pooled:
                result = await self.transact(connection, work)
            else:
                with self._link_probe.statement(connection):
                    result = await work(connection)
        except BaseException as fault:
            # A connection with a response under way can't be used again.
            if (
                isinstance(fault, asyncpg.PostgresError)
                and not is_disconnected(fault)
                and not connection.is_closed()
            ):
                self._idle.append(connection)
            else:
                connection.terminate()
                self._end_idle(fault)
            raise
        if self._closed:
            connection.terminate()
        else:
            self._idle.append(connection)
        return result

    def _end_idle(self, fault: BaseException) -> None:
        """Whatever broke one link has probably broken those that nobody used meanwhile."""
        while self._idle and is_disconnected(fault):
            self._idle.pop().terminate()

    async def close(self) -> None:
        self._closed = True
        self._link_probe.close()
        while self._idle:
            await close_connection(self._idle.pop())


async def close_connection(connection: PgConnection) -> None:
    """Close the connection gracefully where the server still responds."""
    try:
        await connection.close(timeout=1)
    except Exception:
        connection.terminate()


async def _pass_json_through(connection: PgConnection) -> None:
    """Exchange JSON with the server as bytes, undecoded."""
    await connection.set_type_codec(
        "json", schema="pg_catalog", encoder=bytes, decoder=bytes, format="binary"
    )
