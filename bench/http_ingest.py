"""Webhooks in: signature verified, durable, then 2xx; 64 connections, one server process."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from bench.http_load import Client, clients, per_second, server
from bench.ingest_fastapi import KEPT
from bench.ingest_server import PATH, SECRET
from bench.measure import NO_GOAL, SLOW_TURNS, Goal, Open, Place, Ways, Workload
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


@asynccontextmanager
async def _serving(place: Place, engine: str, *kinds: str) -> AsyncIterator[list[list[_Sender]]]:
    """Connections to a server of each kind, each with a store of its own."""
    async with AsyncExitStack() as stack:
        ports = [stack.enter_context(_server(kind, place.url(engine))) for kind in kinds]
        yield [await stack.enter_async_context(_senders(port)) for port in ports]


def flat_out(*kinds: str, full: int = 4_000, quick: int = 2_000) -> Open:
    """Our server against others; `full` and `quick` are the numbers of messages for the others."""

    @asynccontextmanager
    async def opened(place: Place, engine: str) -> AsyncIterator[Ways]:
        many, count = place.scale(4_000, 2_000), place.scale(full, quick)
        async with _serving(place, engine, "ours", *kinds) as (ours, *others):
            yield Ways(partial(per_second, ours, many), *(partial(per_second, one, count) for one in others))

    return opened


@asynccontextmanager
async def keeping_none(place: Place, engine: str) -> AsyncIterator[Ways]:
    """An ASGI server against a protocol; both verify and neither keeps anything."""
    count = place.scale(4_000, 2_000)
    async with _serving(place, engine, "empty", "minimal-empty") as servers:
        yield Ways(*(partial(per_second, one, count) for one in servers))


@asynccontextmanager
async def flat_out_p99(place: Place, engine: str) -> AsyncIterator[Ways]:
    """The 99th percentile of all servers while they get all they can take."""
    count = place.scale(4_000, 2_000)
    async with _serving(place, engine, "ours", "minimal", "minimal-ours") as servers:
        yield Ways(*(partial(_p99, one, count) for one in servers))


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
async def paced(place: Place, engine: str) -> AsyncIterator[Ways]:
    async def limit() -> float:
        return P99_MS_MAX

    count = place.scale(1_000, 500)
    with _server("ours", place.url(engine)) as mine:
        async with _senders(mine) as ours:
            yield Ways(ours=lambda: _paced(ours, count), other=limit)


_ENGINES = ("sqlite full", "postgres")
NAME = "take webhooks in, 64 connections"
BARE, FLOOR = "bare protocol, table of its own", "bare protocol on our table"
WORKLOADS = [
    Workload(
        name=NAME, engines=_ENGINES, unit="messages/s", goal=Goal(0.8),
        other_name="bare ASGI, group commit by hand", open=flat_out("bare"),
    ),
    Workload(
        name=NAME, engines=_ENGINES, unit="messages/s", goal=Goal(15.0),
        other_name="FastAPI + SQLAlchemy", open=flat_out("fastapi", full=400, quick=200),
    ),
    *(
        Workload(
            name=NAME, engines=(engine,), unit="messages/s", goal=Goal(goal), other_name=BARE,
            floor_name=FLOOR, open=flat_out("minimal", "minimal-ours"),
        )
        for engine, goal in (("sqlite full", 0.8), ("postgres", 0.5))
    ),
    Workload(
        name="verify webhooks over ASGI, keep none: the floor", engines=("sqlite full",), unit="messages/s",
        goal=NO_GOAL, other_name="bare protocol, keeps none", open=keeping_none,
    ),
    Workload(
        name=f"{NAME}, p99", engines=_ENGINES, unit="ms", goal=Goal(3.0, at_most=True), other_name=BARE,
        floor_name=FLOOR, open=flat_out_p99,
    ),
    Workload(
        name="take webhooks in, 500 a second, p99", engines=_ENGINES, unit="ms",
        goal=Goal(1.0, at_most=True), other_name="limit", open=paced, turns=SLOW_TURNS,
    ),
]  # fmt: skip
