"""The sender: HTTP/1.1 straight on the event loop, as near to the wire as Python gets.

A request takes a resting connection or opens one, is written in one piece, and its caller waits on
one future. No task, no timer and no look-up is made for it while the receiver keeps its connections.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import msgspec

from holdfast.net.address_guard import AddressGuard
from holdfast.net.http1 import Http1Connection
from holdfast.net.pool import Pool, PoolLimits, Pools
from holdfast.net.port import OutgoingRequest, ReceiverResponse, SendFailure

ROUTES_KEPT_MAX: Final = 10_000
NAMES_KEPT_MAX: Final = 1_000
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
# The sender frames the message itself; a second opinion in the head is how requests are smuggled.
_FRAMING: Final = frozenset(
    {"connection", "content-length", "expect", "host", "keep-alive", "proxy-connection", "te", "trailer",
     "transfer-encoding", "upgrade"}
)  # fmt: skip


class SenderStats(msgspec.Struct, frozen=True):
    """Counts since the start: requests answered, connections made, connections there are now."""

    sent: int
    opened: int
    open_now: int


class _Route(msgspec.Struct, frozen=True):
    """What all requests to one URL have in common; looked up anew after `until`."""

    pool: Pool
    tail: str
    until: float


class RawSender:
    """A `Sender` over its own connections, reaching only what the guard lets it reach.

    A call writes its request at most once. A connection that rested is looked at before it is written
    to, and dropped before the receiver would close it; when it breaks all the same, that is a `reset` for
    the caller to count, because the receiver may have got the request. Redirects are answers like any
    other; proxies named in the environment are not used.

    Example:
        sender = RawSender(AddressGuard())
        answer = await sender.send(Outgoing("POST", url, headers, body, 5.0, 65_536))
    """

    def __init__(
        self, guard: AddressGuard, *, limits: PoolLimits | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        self._guard = guard
        self._pools = Pools(limits or PoolLimits(), tls)
        self._routes: dict[str, _Route] = {}
        self._names_seen: set[str] = set()
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
        answer = await self._exchange(route.pool, request, head=head, deadline=deadline)
        self._sent += 1
        return answer

    async def close(self) -> None:
        """Drop every connection; whoever waits for an answer gets a `reset`."""
        self._closed = True
        await self._pools.close()

    async def _exchange(
        self, pool: Pool, request: OutgoingRequest, *, head: bytes, deadline: float
    ) -> ReceiverResponse:
        connection = self._pools.resting(pool) if pool.idle else None
        if connection is None:
            connection = await self._obtain(pool, deadline)
        waiter = connection.ask(
            head,
            request.body,
            head_only=request.method == "HEAD",
            deadline=deadline,
            body_bytes_max=request.response_bytes_max,
        )
        try:
            return await waiter
        except asyncio.CancelledError:
            connection.drop()
            raise

    async def _obtain(self, pool: Pool, deadline: float) -> Http1Connection:
        async with _in_time(deadline, "no connection became free"):
            return await self._pools.obtain(pool)

    async def _find_route(self, url: str, deadline: float) -> _Route:
        async with _in_time(deadline, "the host's name was not resolved"):
            pin = await self._guard.pin(url)
        if len(self._routes) >= ROUTES_KEPT_MAX:
            self._routes.clear()
            self._pools.prune()
        tail = f"{pin.target.path} HTTP/1.1\r\nhost: {pin.target.authority}\r\n"
        route = self._routes[url] = _Route(self._pools.pool(pin), tail, pin.until)
        return route

    def _head(self, request: OutgoingRequest, route: _Route) -> bytes:
        seen = self._names_seen
        if request.method not in seen:
            self._check_name(request.method)
        lines = [f"{request.method} {route.tail}"]
        for name, value in request.headers:
            if name not in seen:
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
        if len(self._names_seen) < NAMES_KEPT_MAX:
            self._names_seen.add(name)


@asynccontextmanager
async def _in_time(deadline: float, failing: str) -> AsyncIterator[None]:
    """Fail as a timeout, and say at what, when the deadline passes inside."""
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            yield
    except TimeoutError:
        raise SendFailure("timeout", f"{failing} within the time limit") from None
