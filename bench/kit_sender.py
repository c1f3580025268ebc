"""Signed 1 KB POSTs to a local receiver, 100 in flight, one process: the sender against others.

The raw loop is the limit: 100 connections, each writing the same ready-made bytes when its answer is
in, with no pool, no time limit, no guard and no request of its own. aiohttp has its fast settings.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import aiohttp
import httptools
import trustme

from bench.measure import Goal, Place, Ways, Workload
from bench.receiver import receiving
from holdfast.kit.outbox.signing import WebhookSigner, new_secret
from holdfast.net import AddressGuard, OutgoingRequest, RawSender

IN_FLIGHT = 100
BODY = secrets.token_urlsafe(768).encode()
SIGN = WebhookSigner([new_secret()]).headers


def headers(n: int) -> tuple[tuple[str, str], ...]:
    return (("content-type", "application/json"), *SIGN(f"evt-{n}", 1_760_000_000, BODY))


async def in_flight(count: int, send: Callable[[int], Awaitable[int]]) -> float:
    """Requests per second, with a fixed number in flight."""
    numbers = iter(range(count))

    async def caller() -> None:
        for n in numbers:
            assert await send(n) == 200

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(IN_FLIGHT)))
    return count / (time.perf_counter() - started)


class RawCaller(asyncio.Protocol):
    """Send the next request on each response, until all are sent."""

    def __init__(self, request: bytes, left: list[int], done: asyncio.Future[None]) -> None:
        self._request, self._left, self._done = request, left, done
        self._parser = httptools.HttpResponseParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        assert self._parser.get_status_code() == 200
        self.ask()

    def ask(self) -> None:
        if self._left[0] > 0:
            self._left[0] -= 1
            self._transport.write(self._request)
        elif not self._done.done():
            self._done.set_result(None)


async def raw_loop(port: int, count: int) -> float:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers(0))
    request = f"POST /hook HTTP/1.1\r\nhost: x\r\n{lines}content-length: {len(BODY)}\r\n\r\n".encode() + BODY
    loop = asyncio.get_running_loop()
    left, done = [count], loop.create_future()
    made = [
        await loop.create_connection(lambda: RawCaller(request, left, done), "127.0.0.1", port)
        for _ in range(IN_FLIGHT)
    ]
    started = time.perf_counter()
    for _, caller in made:
        caller.ask()
    await done
    rate = count / (time.perf_counter() - started)
    for transport, _ in made:
        transport.close()
    return rate


def sending(sender: RawSender, url: str) -> Callable[[int], Awaitable[int]]:
    async def send(n: int) -> int:
        return (await sender.send(OutgoingRequest("POST", url, headers(n), BODY, 5.0, 65_536))).status

    return send


def sending_aiohttp(session: aiohttp.ClientSession, url: str) -> Callable[[int], Awaitable[int]]:
    async def send(n: int) -> int:
        async with session.post(url, data=BODY, headers=dict(headers(n)), allow_redirects=False) as answer:
            await answer.read()
            return answer.status

    return send


@contextlib.asynccontextmanager
async def against_raw(place: Place, engine: str) -> AsyncIterator[Ways]:
    count = place.scale(20_000, 5_000)
    sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
    with receiving() as port:
        send = sending(sender, f"http://127.0.0.1:{port}/hook")
        yield Ways(lambda: in_flight(count, send), lambda: raw_loop(port, count))
        await sender.close()


@contextlib.asynccontextmanager
async def against_aiohttp(place: Place, engine: str) -> AsyncIterator[Ways]:
    count = place.scale(6_000, 2_000)
    with contextlib.ExitStack() as stack:
        tls, certificate = _secured(stack) if engine == "https" else (None, None)
        port = stack.enter_context(receiving(certificate))
        url = f"{engine}://localhost:{port}/hook"
        sender = RawSender(AddressGuard(allow=["localhost"]), tls=tls)
        connector = aiohttp.TCPConnector(limit=IN_FLIGHT, ssl=tls or True)
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            ours, other = sending(sender, url), sending_aiohttp(session, url)
            yield Ways(lambda: in_flight(count, ours), lambda: in_flight(count, other))
        await sender.close()


def _secured(stack: contextlib.ExitStack) -> tuple[ssl.SSLContext, Path]:
    authority = trustme.CA()
    path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "certificate.pem"
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(path)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context, path


WORKLOADS = [
    Workload(
        name="send: signed 1 KB POSTs, 100 in flight", engines=("http",), unit="POST/s",
        other_name="ready-made bytes on a raw protocol", goal=Goal(0.3), open=against_raw,
    ),
    Workload(
        name="send: signed 1 KB POSTs, 100 in flight", engines=("http",), unit="POST/s",
        other_name="aiohttp", goal=Goal(3.0), open=against_aiohttp,
    ),
    # The receiver's TLS saturates the other core, so it limits the faster sender more.
    Workload(
        name="send: signed 1 KB POSTs, 100 in flight", engines=("https",), unit="POST/s",
        other_name="aiohttp", goal=Goal(2.0), open=against_aiohttp,
    ),
]  # fmt: skip
