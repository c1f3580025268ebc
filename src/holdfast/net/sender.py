"""The sender: HTTP/1.1 straight on the event loop.

A request takes an idle connection or opens one, is written in one piece, and its caller waits on one future.
It needs no task, timer or lookup of its own while the receiver keeps its connections; by `start`, no future.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec

from holdfast.net.address_guard import AddressGuard
from holdfast.net.http1 import Http1Connection
from holdfast.net.pool import Pool, PoolLimits, Pools
from holdfast.net.port import OnResult, OutgoingRequest, ReceiverResponse, SendFailure, SendResult

ROUTES_MAX: Final = 10_000
NAMES_MAX: Final = 1_000
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# The sender frames the message itself; conflicting framing headers are how requests are smuggled.
_FRAMING: Final = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip


class SenderStats(msgspec.Struct, frozen=True):
    """Counts: requests written and connections opened since the start, connections open now."""

    sent: int
    opened: int
    open_now: int


class _Route(msgspec.Struct, frozen=True):
    """What all requests to one URL have in common; resolved again after `until`."""

    pool: Pool
    tail: str
    until: float


class RawSender:
    """A `Sender` with its own connection pools that reaches only what the guard allows.

    A call writes its request at most once. An idle connection is checked before it is written to and dropped
    before the receiver would close it; when it breaks all the same, that is a `reset` for the caller to
    count, because the receiver may have got the request. Redirects are responses like any other; proxies
    named in the environment are not used.

    Example:
        sender = RawSender(AddressGuard())
        response = await sender.send(OutgoingRequest("POST", url, headers, body, 5.0, 65_536))
    """

    def __init__(
        self, guard: AddressGuard, *, limits: PoolLimits | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._guard = guard
        self._pools = Pools(limits or PoolLimits(), tls)
        self._routes: dict[str, _Route] = {}
        self._valid_names: set[str] = set()
        self._closed = False
        self._sent = 0

    def stats(self) -> SenderStats:
        return SenderStats(self._sent, self._pools.opened, self._pools.open_now)

    async def send(self, request: OutgoingRequest) -> ReceiverResponse:
        deadline = time.monotonic() + request.timeout_s
        if self._closed:
            raise SendFailure("connect", "the sender is closed")
        route = self._routes.get(request.url)
        if route is None or route.until <= self._guard.monotonic():
            route = await self._find_route(request.url, deadline)
        head = self._head(request, route)
        pool = route.pool
        connection = self._pools.take_idle(pool) if pool.idle else None
        if connection is None:
            connection = await self._obtain(pool, deadline)
        waiter: asyncio.Future[ReceiverResponse] = asyncio.get_running_loop().create_future()
        on_result = partial(_resolve, waiter)
        self._sent += 1
        connection.send(head, request, on_result, deadline=deadline)
        try:
            return await waiter
        except asyncio.CancelledError:
            connection.abandon(on_result)
            raise

    def start(self, request: OutgoingRequest, on_result: OnResult) -> Http1Connection | None:
        route = self._routes.get(request.url)
        if route is None or self._closed or not route.pool.idle or route.until <= self._guard.monotonic():
            return None
        head = self._head(request, route)
        connection = self._pools.take_idle(route.pool)
        if connection is not None:
            self._sent += 1
            connection.send(head, request, on_result, deadline=time.monotonic() + request.timeout_s)
        return connection

    async def close(self) -> None:
        """Drop every connection; requests under way get a `reset`."""
        self._closed = True
        await self._pools.close()

    async def _obtain(self, pool: Pool, deadline: float) -> Http1Connection:
        async with _in_time(deadline, "no connection became free"):
            return await self._pools.obtain(pool)

    async def _find_route(self, url: str, deadline: float) -> _Route:
        async with _in_time(deadline, "the host's name was not resolved"):
            pin = await self._guard.pin(url)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
            self._pools.prune()
        tail = f"{pin.target.path} HTTP/1.1\r\nhost: {pin.target.authority}\r\n"
        route = self._routes[url] = _Route(self._pools.pool(pin), tail, pin.until)
        return route

    def _head(self, request: OutgoingRequest, route: _Route) -> bytes:
        valid = self._valid_names
        if request.method not in valid:
            self._check_name(request.method)
        lines = [f"{request.method} {route.tail}"]
        for name, value in request.headers:
            if name not in valid:
                self._check_name(name)
            if not value.isprintable() and _CONTROL.search(value):
                raise SendFailure("bad_request", f"the header {name} holds a control character")
            lines.append(f"{name}: {value}\r\n")
        lines.append(f"content-length: {len(request.body)}\r\n\r\n")
        try:
            return "".join(lines).encode("latin-1")
        except UnicodeEncodeError:
            raise SendFailure("bad_request", "a header holds characters beyond Latin-1") from None

    def _check_name(self, name: str) -> None:
        if not _TOKEN.fullmatch(name) or name.lower() in _FRAMING:
            raise SendFailure("bad_request", f"{name!r} can't be sent as a header's name or a method")
        if len(self._valid_names) < NAMES_MAX:
            self._valid_names.add(name)


def _resolve(waiter: asyncio.Future[ReceiverResponse], result: SendResult) -> None:
    if waiter.done():
        return
    if isinstance(result, SendFailure):
        waiter.set_exception(result)
    else:
        waiter.set_result(result)


@asynccontextmanager
async def _in_time(deadline: float, failing: str) -> AsyncIterator[None]:
    """Raise a timeout that says what failed when the deadline passes inside."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            yield
    except TimeoutError:
        raise SendFailure("timeout", f"{failing} within the time limit") from None
