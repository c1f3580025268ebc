"""The connections of a sender: so many to one target, so many in all, and turns for those who wait."""

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
    """How many connections there may be, and how long they may take and rest."""

    per_host_max: int = 100
    total_max: int = 1_000
    connect_s: float = 3.0
    # Shorter than common servers rest (5 s): whoever closes first must be this side, or a request may
    # meet the closing and count as a failed attempt.
    idle_s: float = 4.0


class Pool:
    """The connections to one pinned target."""

    __slots__ = ("idle", "open", "pin", "waiters")

    def __init__(self, pin: Pin) -> None:
        self.pin = pin
        self.open = 0
        self.idle: list[Http1Connection] = []
        # A waiter gets a connection, or None: leave to open one.
        self.waiters: deque[asyncio.Future[Http1Connection | None]] = deque()


class Pools:
    """All pools under one total limit. Used from one event loop."""

    def __init__(self, limits: PoolLimits, tls: ssl.SSLContext | None = None) -> None:
        self._limits = limits
        self._tls = tls
        self._pools: dict[PoolKey, Pool] = {}
        self._homes: dict[Http1Connection, Pool] = {}
        self._total = 0
        # Pools with waiters that could go on if a connection or a slot became free, in turn.
        self._starved: dict[Pool, None] = {}
        self._gone = asyncio.Event()
        self._closed = False
        self.opened = 0

    @property
    def open_now(self) -> int:
        return self._total

    def pool(self, pin: Pin) -> Pool:
        """The pool of a judged target: connections never outlive the addresses they were judged for."""
        target = pin.target
        key = (target.scheme, target.host, target.port, frozenset(pin.addresses))
        found = self._pools.get(key)
        if found is None:
            found = self._pools[key] = Pool(pin)
        found.pin = pin
        return found

    def prune(self) -> None:
        """Forget pools that hold nothing."""
        self._pools = {key: pool for key, pool in self._pools.items() if pool.open or pool.waiters}

    def resting(self, pool: Pool) -> Http1Connection | None:
        """The connection used last that is still good; those that are not are dropped."""
        while pool.idle:
            connection = pool.idle.pop()
            if connection.usable():
                return connection
            connection.drop()
        return None

    async def obtain(self, pool: Pool) -> Http1Connection:
        """A connection of one's own, opened or handed over as soon as the limits allow."""
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
            self._leave(pool)
            raise
        return self._welcome(connection, pool)

    async def close(self) -> None:
        """Drop all connections and wait for what is being opened, which ends by its own time limits."""
        self._closed = True
        for pool in self._pools.values():
            for waiter in pool.waiters:
                if not waiter.done():
                    waiter.set_exception(SendFailure("connect", "the sender was closed"))
            pool.waiters.clear()
        self._starved.clear()
        for connection in list(self._homes):
            connection.drop(SendFailure("reset", "the sender was closed"))
        self._gone.clear()
        if self._total:
            await self._gone.wait()

    # -- slots ------------------------------------------------------------------------------------

    def _reserve(self, pool: Pool) -> bool:
        if pool.open >= self._limits.per_host_max or self._total >= self._limits.total_max:
            return False
        pool.open += 1
        self._total += 1
        return True

    def _leave(self, pool: Pool) -> None:
        pool.open -= 1
        self._total -= 1
        if self._total == 0:
            self._gone.set()
        self._serve(pool)

    async def _wait(self, pool: Pool) -> Http1Connection | None:
        waiter: asyncio.Future[Http1Connection | None] = asyncio.get_running_loop().create_future()
        pool.waiters.append(waiter)
        self._serve(pool)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():
                with suppress(ValueError):
                    pool.waiters.remove(waiter)
            elif waiter.exception() is None:
                self._give_back(pool, waiter.result())
            raise

    def _give_back(self, pool: Pool, connection: Http1Connection | None) -> None:
        if connection is None:
            self._leave(pool)
        elif not connection.closed:
            self._freed(connection)

    def _serve(self, pool: Pool) -> None:
        """Something may have become free: give it to whose turn it is, until nothing can be given."""
        if pool.waiters:
            self._starved.setdefault(pool)
        given = bool(self._starved)
        while given:
            given = any(self._grant(starved) for starved in list(self._starved))

    def _grant(self, pool: Pool) -> bool:
        while pool.waiters and pool.waiters[0].done():
            pool.waiters.popleft()
        connection = self.resting(pool) if pool.waiters else None
        granted = connection is not None or (bool(pool.waiters) and self._reserve(pool))
        if granted:
            pool.waiters.popleft().set_result(connection)
        held_up = bool(pool.waiters) and pool.open < self._limits.per_host_max
        self._starved.pop(pool, None)
        if held_up:
            self._starved[pool] = None
            self._evict(pool)
        return granted

    def _evict(self, starved: Pool) -> None:
        """Close somebody else's resting connection; its slot is given on when it is gone."""
        for pool in self._pools.values():
            if pool is not starved and pool.idle and self._total >= self._limits.total_max:
                pool.idle.pop(0).drop()
                return

    def _freed(self, connection: Http1Connection) -> None:
        pool = self._homes[connection]
        pool.idle.append(connection)
        if pool.waiters or self._starved:
            self._serve(pool)

    def _lost(self, connection: Http1Connection) -> None:
        pool = self._homes.pop(connection, None)
        if pool is None:
            return  # it ended while it was being opened; its slot is given back there
        with suppress(ValueError):
            pool.idle.remove(connection)
        self._leave(pool)

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
                # The certificate is judged by the name, which is the same at every address.
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

    def _welcome(self, connection: Http1Connection, pool: Pool) -> Http1Connection:
        """From here on the slot is the connection's, and given back when that is lost."""
        if connection.closed:
            self._leave(pool)
            raise SendFailure("reset", "the receiver closed the connection as soon as it was open")
        self._homes[connection] = pool
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
