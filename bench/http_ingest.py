"""Webhooks in: signature verified, durable, then 2xx; 64 connections, one server process."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from bench.http_load import Client, clients, per_second, server
from bench.ingest_fastapi import KEPT
from bench.ingest_server import PATH, SECRET
from bench.measure import SLOW_TURNS, Goal, Open, Pair, Place, Workload
from holdfast import ids

CONNECTIONS = 64
PACE_PER_S = 500
P99_MS_MAX = 50.0
MESSAGE = b'{"action":"opened","number":7,"text":"' + b"x" * 960 + b'"}'
HEAD = (
    f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\nx-github-event: push\r\n"
    f"x-hub-signature-256: sha256={hmac.new(SECRET.encode(), MESSAGE, hashlib.sha256).hexdigest()}\r\n"
    f"content-length: {len(MESSAGE)}\r\nx-github-delivery: "
).encode()


class _Sender(Client):
    _answer = b""

    def request(self) -> bytes:
        return HEAD + ids.ulid().encode() + b"\r\n\r\n" + MESSAGE

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if self._answer.endswith(KEPT) and self._done is not None:
            answer, self._answer = self._answer, b""
            if not answer.startswith(b"HTTP/1.1 202"):
                raise AssertionError(answer[:200])
            self._done.set_result(None)


_server = partial(server, "bench.ingest_server")
_senders = partial(clients, _Sender, count=CONNECTIONS)


async def _paced(senders: list[_Sender], count: int) -> float:
    """Send messages at a steady rate; return the 99th percentile in milliseconds."""
    took: list[float] = []
    free: asyncio.Queue[_Sender] = asyncio.Queue()
    for sender in senders:
        free.put_nowait(sender)

    async def one(due: float) -> None:
        sender = await free.get()
        await sender.ask()
        # From when it was due, not from when a connection was free: waiting counts.
        took.append(time.perf_counter() - due)
        free.put_nowait(sender)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            due = began + number / PACE_PER_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(one(due))
    return sorted(took)[int(count * 0.99)] * 1_000


def flat_out(peer: str, full: int, quick: int) -> Open:
    """Our server against another; `full` and `quick` are the numbers of messages for the other one."""

    @asynccontextmanager
    async def opened(place: Place, engine: str) -> AsyncIterator[Pair]:
        many, count = place.scale(8_000, 2_000), place.scale(full, quick)
        with _server("ours", place.url(engine)) as mine, _server(peer, place.url(engine)) as theirs:
            async with _senders(mine) as ours, _senders(theirs) as other:
                yield Pair(ours=lambda: per_second(ours, many), other=lambda: per_second(other, count))

    return opened


@asynccontextmanager
async def floor(place: Place, engine: str) -> AsyncIterator[Pair]:
    """An ASGI server against a protocol; both verify and neither keeps anything."""
    count, url = place.scale(8_000, 2_000), place.url(engine)
    with _server("empty", url) as mine, _server("minimal-empty", url) as theirs:
        async with _senders(mine) as ours, _senders(theirs) as other:
            yield Pair(ours=lambda: per_second(ours, count), other=lambda: per_second(other, count))


@asynccontextmanager
async def flat_out_p99(place: Place, engine: str) -> AsyncIterator[Pair]:
    """The 99th percentile of both servers while they get all they can take."""
    count = place.scale(8_000, 2_000)
    with _server("ours", place.url(engine)) as mine, _server("minimal", place.url(engine)) as theirs:
        async with _senders(mine) as ours, _senders(theirs) as other:
            yield Pair(ours=lambda: _p99(ours, count), other=lambda: _p99(other, count))


async def _p99(senders: list[_Sender], count: int) -> float:
    took: list[float] = []
    left = iter(range(count))

    async def go_on(sender: _Sender) -> None:
        for _ in left:
            asked = time.perf_counter()
            await sender.ask()
            took.append(time.perf_counter() - asked)

    await asyncio.gather(*(go_on(sender) for sender in senders))
    return sorted(took)[int(count * 0.99)] * 1_000


@asynccontextmanager
async def paced(place: Place, engine: str) -> AsyncIterator[Pair]:
    async def limit() -> float:
        return P99_MS_MAX

    count = place.scale(2_000, 500)
    with _server("ours", place.url(engine)) as mine:
        async with _senders(mine) as ours:
            yield Pair(ours=lambda: _paced(ours, count), other=limit)


_ENGINES = ("sqlite full", "postgres")
WORKLOADS = [
    Workload(
        name="take webhooks in, 64 connections", engines=_ENGINES, unit="messages/s", goal=Goal(0.8),
        other_name="bare ASGI, group commit by hand", open=flat_out("bare", 8_000, 2_000),
    ),
    Workload(
        name="take webhooks in, 64 connections", engines=_ENGINES, unit="messages/s", goal=Goal(15.0),
        other_name="FastAPI + SQLAlchemy", open=flat_out("fastapi", 800, 200),
    ),
    Workload(
        name="take webhooks in, 64 connections", engines=("sqlite full",), unit="messages/s", goal=Goal(0.8),
        other_name="bare protocol, table of its own", open=flat_out("minimal", 8_000, 2_000),
    ),
    Workload(
        name="take webhooks in, 64 connections", engines=("postgres",), unit="messages/s", goal=Goal(0.5),
        other_name="bare protocol, table of its own", open=flat_out("minimal", 8_000, 2_000),
    ),
    Workload(
        name="verify webhooks over ASGI, keep none: the floor", engines=("sqlite full",), unit="messages/s",
        goal=Goal(0.0), other_name="bare protocol, keeps none", open=floor,
    ),
    Workload(
        name="take webhooks in, 64 connections, p99", engines=_ENGINES, unit="ms",
        goal=Goal(3.0, at_most=True), other_name="bare protocol, table of its own", open=flat_out_p99,
    ),
    Workload(
        name="take webhooks in, 500 a second, p99", engines=_ENGINES, unit="ms",
        goal=Goal(1.0, at_most=True), other_name="limit", open=paced, turns=SLOW_TURNS,
    ),
]  # fmt: skip
