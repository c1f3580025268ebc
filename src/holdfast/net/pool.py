"""Connection pools: limits per target and in all, and fair turns for requests that wait."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from contextlib import suppress

import msgspec

from holdfast.net.address_guard import Pin
from holdfast.net.http1 import Http1Connection
from holdfast.net.port import SendFailure
from holdfast.net.url import Address

PoolKey = tuple[str, str, int, frozenset[Address]]


class PoolLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of connections: how many, how long to open one, how long one may be idle."""

    per_host_max: int = 100
    total_max: int = 1_000
    connect_s: float = 3.0
    # Shorter than common servers' keep-alive (5 s): this side must close first, or a request may meet the
    # closing and count as a failed attempt.
    idle_s: float = 4.0


class Pool:
    """The connections to one pinned target."""

    __slots__ = ("idle", "open", "pin", "waiters")

    def __init__(self, pin: Pin) -> None:
        self.pin = pin
        self.open = 0
        self.idle: list[Http1Connection] = []
        # A waiter gets a connection, or None: permission to open one.
        self.waiters: deque[asyncio.Future[Http1Connection | None]] = deque()


class Pools:
    """All pools under one total limit. Used from one event loop."""

    def __init__(self, limits: PoolLimits, tls: ssl.SSLContext | None = None) -> None:
        self._limits = limits
        self._tls = tls
        self._pools: dict[PoolKey, Pool] = {}
        self._pool_of: dict[Http1Connection, Pool] = {}
        self._total = 0
        # Pools whose waiters could go on if a connection or a slot became free, in turn.
        self._starved: dict[Pool, None] = {}
        self._all_closed = asyncio.Event()
        self._closed = False
        self.opened = 0

    @property
    def open_now(self) -> int:
        return self._total

    def pool(self, pin: Pin) -> Pool:
        """Return a checked target's pool: connections never outlive the addresses they were checked for."""
        target = pin.target
        key = (target.scheme, target.host, target.port, frozenset(pin.addresses))
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = Pool(pin)
        found.pin = pin
        return found

    def prune(self) -> None:
        """Drop pools without connections or waiters."""
        self._pools = {key: pool for key, pool in self._pools.items() if pool.open or pool.waiters}

    def take_idle(self, pool: Pool) -> Http1Connection | None:
        """Return the usable connection used last; drop those that are not usable."""
        while pool.idle:
            connection = pool.idle.pop()
            if connection.usable():
                return connection
            connection.drop()
        return None

    async def obtain(self, pool: Pool) -> Http1Connection:
        """Return an exclusive connection, opened or handed over as soon as the limits allow."""
        while pool.waiters or not self._reserve(pool):
            handed = await self._wait(pool)
            if handed is None:
                break
            if handed.usable():
                return handed
            handed.drop()
        try:
            connection = await self._open(pool)
        except BaseException:
            self._free_slot(pool)
            raise
        return self._adopt(connection, pool)

    async def close(self) -> None:
        """Drop all connections and wait for those being opened, which end by their own time limits."""
        self._closed = True
        for pool in self._pools.values():
            for waiter in pool.waiters:
                if not waiter.done():
                    waiter.set_exception(SendFailure("connect", "the sender was closed"))
            pool.waiters.clear()
        self._starved.clear()
        for connection in list(self._pool_of):
            connection.drop(SendFailure("reset", "the sender was closed"))
        self._all_closed.clear()
        if self._total:
            await self._all_closed.wait()

    # -- slots ------------------------------------------------------------------------------------

    def _reserve(self, pool: Pool) -> bool:
        if pool.open >= self._limits.per_host_max or self._total >= self._limits.total_max:
            return False
        pool.open += 1
        self._total += 1
        return True

    def _free_slot(self, pool: Pool) -> None:
        pool.open -= 1
        self._total -= 1
        if self._total == 0:
            self._all_closed.set()
        self._grant_waiters(pool)

    async def _wait(self, pool: Pool) -> Http1Connection | None:
        waiter: asyncio.Future[Http1Connection | None] = asyncio.get_running_loop().create_future()
        pool.waiters.append(waiter)
        self._grant_waiters(pool)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):
                    pool.waiters.remove(waiter)
            elif waiter.exception() is None:
                self._return(pool, waiter.result())
            raise

    def _return(self, pool: Pool, connection: Http1Connection | None) -> None:
        if connection is None:
            self._free_slot(pool)
        elif not connection.closed:
            self._freed(connection)

    def _grant_waiters(self, pool: Pool) -> None:
        """Grant what has become free to the waiters in turn, until nothing is left to grant."""
        if pool.waiters:
            self._starved.setdefault(pool)
        given = bool(self._starved)
        while given:
            given = any(self._grant(starved) for starved in list(self._starved))

    def _grant(self, pool: Pool) -> bool:
        while pool.waiters and pool.waiters[0].done():
            pool.waiters.popleft()
        connection = self.take_idle(pool) if pool.waiters else None
        granted = connection is not None or (bool(pool.waiters) and self._reserve(pool))
        if granted:
            pool.waiters.popleft().set_result(connection)
        blocked = bool(pool.waiters) and pool.open < self._limits.per_host_max
        self._starved.pop(pool, None)
        if blocked:
            self._starved[pool] = None
            self._evict(pool)
        return granted

    def _evict(self, starved: Pool) -> None:
        """Close another pool's idle connection; its slot is granted when it is gone."""
        for pool in self._pools.values():
            if pool is not starved and pool.idle and self._total >= self._limits.total_max:
                pool.idle.pop(0).drop()
                return

    def _freed(self, connection: Http1Connection) -> None:
        pool = self._pool_of[connection]
        pool.idle.append(connection)
        if pool.waiters or self._starved:
            self._grant_waiters(pool)

    def _lost(self, connection: Http1Connection) -> None:
        pool = self._pool_of.pop(connection, None)
        if pool is None:
            return  # it ended while it was being opened; its slot is given back there
        with suppress(ValueError):
            pool.idle.remove(connection)
        self._free_slot(pool)

    # -- opening ----------------------------------------------------------------------------------

    async def _open(self, pool: Pool) -> Http1Connection:
        failure = SendFailure("connect", "the target has no address")
        for address in pool.pin.addresses:
            try:
                async with asyncio.timeout(self._limits.connect_s):
                    return await self._dial(pool, address)
            except TimeoutError:
                failure = SendFailure("timeout", f"no connection within {self._limits.connect_s:g} s")
            except ssl.SSLError as fault:
                # The certificate is checked against the name, which is the same at every address.
                raise SendFailure("tls", f"no safe connection: {_tls_reason(fault)}") from None
            except OSError as fault:
                failure = SendFailure("connect", f"no connection: {fault.strerror or type(fault).__name__}")
        raise failure

    async def _dial(self, pool: Pool, address: Address) -> Http1Connection:
        loop, target = asyncio.get_running_loop(), pool.pin.target
        sock = socket.socket(socket.AF_INET if address.version == 4 else socket.AF_INET6, socket.SOCK_STREAM)
        limits = self._limits
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, (str(address), target.port))
            connection = Http1Connection(
                sock, loop=loop, idle_s=limits.idle_s, on_free=self._freed, on_lost=self._lost
            )
            secure = target.scheme == "https"
            await loop.create_connection(
                lambda: connection,
                sock=sock,
                ssl=self._context() if secure else None,
                server_hostname=target.host if secure else None,
            )
        except BaseException:
            sock.close()
            raise
        self.opened += 1
        return connection

    def _adopt(self, connection: Http1Connection, pool: Pool) -> Http1Connection:
        """Hand the slot over to the connection, which returns it when it is lost."""
        if connection.closed:
            self._free_slot(pool)
            raise SendFailure("reset", "the receiver closed the connection as soon as it was open")
        self._pool_of[connection] = pool
        if self._closed:
            connection.drop()
            raise SendFailure("reset", "the sender was closed")
        return connection

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
            self._tls.set_alpn_protocols(["http/1.1"])
        return self._tls


def _tls_reason(fault: ssl.SSLError) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        return fault.verify_message
    return fault.reason or "the handshake failed"
