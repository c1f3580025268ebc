"""Webhooks from more connections than can be handled, and a long queue of deliveries, for a bounded time.

Every connection sends its next message as soon as the last one was answered, also after a 503: no sender
waits as `Retry-After` says. One server process does everything, as `holdfast serve` does. What is reported
besides the rows goes to standard error.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from bench.http_ingest import HEAD, MESSAGE
from bench.http_load import Client, clients
from bench.measure import Goal, Open, Place, Ways, Workload
from bench.receiver import receiving
from holdfast import ids
from holdfast.app import open_store
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import OUTBOX_MODELS, Delivery, Endpoint, EndpointSecrets, Event, Outbox, new_secret
from holdfast.kit.vault import Vault, new_key
from holdfast.store import Query, Store, create, put

LOAD_S, QUICK_LOAD_S = 20.0, 5.0
UNDISTURBED = 20_000
BATCH = 500
HEALTH_EVERY_S = 0.1
HEALTH_P99_MS_MAX = 1_000.0
GROWTH_MB_MAX = 100.0
HANDLED_SHARE_MIN = 0.5
KEYS = new_key("bench")
DELIVERIES, QUICK_DELIVERIES = 100_000, 5_000
DELIVERIES_MB_MAX = 250.0
DRAIN_S, QUICK_DRAIN_S = 20, 5  # short enough that some are pending to the end
DELIVERED_PER_S_MIN = 500.0


class Overload(msgspec.Struct, frozen=True, kw_only=True):
    """What happened in one run; rates are per second, memory in MB."""

    connections: int
    accepted: float
    refused: float
    failed: int
    handled: float
    undisturbed: float
    backlog: int
    health_p99_ms: float
    rss_start: float
    rss_max: float
    machine_load: float


class _Server:
    """A serving process, how much it has handled, and the most memory it had."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.port, self._process = port, process
        self.handled, self.rss_max = 0, 0.0

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGESIZE") / 1e6

    async def watch(self) -> None:
        assert self._process.stdout is not None
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, self._process.stdout.readline):
            if line.strip().isdigit():
                self.handled = int(line)
                self.rss_max = max(self.rss_max, self.rss_mb())


@asynccontextmanager
async def _serving(url: str) -> AsyncIterator[_Server]:
    command = [sys.executable, "-m", "bench.overload_server", url, KEYS]
    # Blocks for a moment, before anything is measured.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:  # noqa: ASYNC220
        assert process.stdout is not None
        server = _Server(process, next(int(line) for line in process.stdout if line.strip().isdigit()))
        watching = asyncio.create_task(server.watch())
        try:
            yield server
        finally:
            process.kill()
            await watching


class _Sender(Client):
    """Sends messages and counts the statuses."""

    statuses: Counter[bytes] = Counter()
    _response = b""

    def request(self) -> bytes:
        return HEAD + ids.ulid().encode() + b"\r\n\r\n" + MESSAGE

    def data_received(self, data: bytes) -> None:
        self._response += data
        head, separator, body = self._response.partition(b"\r\n\r\n")
        if separator and len(body) == int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]):
            self.statuses[head[9:12]] += 1
            self._response = b""
            if self._done is not None and not self._done.done():
                self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_exception(exc or ConnectionError("closed"))


async def _fill(url: str, count: int) -> None:
    """Store messages that wait to be handled."""
    store = await open_store(url, [InboxItem])
    await store.migrate()
    now, names = store.clock.now(), [ids.ulid() for _ in range(count)]
    for first in range(0, count, BATCH):
        await store.privileged().commit(*(
            create(InboxItem.received(
                tenant_id="-", source="bench", message_id=name, received_at=now, due_at=now, body=MESSAGE
            ))
            for name in names[first : first + BATCH]
        ))  # fmt: skip
    await store.close()


async def _undisturbed(server: _Server, count: int) -> float:
    """Handled per second while nobody sends; waits until all is handled."""
    began, before = time.perf_counter(), server.handled
    while server.handled < count * 0.95:  # noqa: ASYNC110 - another process counts
        await asyncio.sleep(0.05)
    rate = (server.handled - before) / (time.perf_counter() - began)
    while server.handled < count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    return rate


async def _probe_health(port: int, until: float) -> list[float]:
    took: list[float] = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
        while time.perf_counter() < until:
            began = time.perf_counter()
            async with session.get("/health") as response:
                await response.read()
            took.append((time.perf_counter() - began) * 1_000)
            await asyncio.sleep(HEALTH_EVERY_S)
    return sorted(took)


async def _send_until(sender: _Sender, until: float) -> int:
    """Send one message after the other; return 1 where the connection failed."""
    try:
        while time.perf_counter() < until:
            await sender.ask()
    except OSError:
        return 1
    return 0


async def _overload(url: str, connections: int, *, seconds: float, undisturbed: int) -> Overload:
    await _fill(url, undisturbed)
    async with _serving(url) as server:
        rate, start_mb = await _undisturbed(server, undisturbed), server.rss_mb()
        _Sender.statuses.clear()
        async with clients(_Sender, server.port, connections) as senders:
            began, before = time.perf_counter(), server.handled
            until = began + seconds
            probing = asyncio.create_task(_probe_health(server.port, until))
            failed = asyncio.gather(*(_send_until(one, until) for one in senders))
            await asyncio.sleep(seconds)
            handled, statuses = server.handled - before, _Sender.statuses.copy()
            accepted, refused = statuses[b"202"], statuses[b"503"]
            others = sum(await failed) + statuses.total() - accepted - refused
            took = await probing
        return Overload(
            connections=connections, accepted=accepted / seconds, refused=refused / seconds, failed=others,
            handled=handled / seconds, undisturbed=rate, backlog=accepted - handled,
            health_p99_ms=took[int(len(took) * 0.99)], rss_start=start_mb,
            rss_max=server.rss_max, machine_load=os.getloadavg()[0],
        )  # fmt: skip


_measured: dict[tuple[str, int], Overload] = {}


async def _once(place: Place, engine: str, connections: int) -> Overload:
    """Measured once for all rows."""
    if (engine, connections) not in _measured:
        seconds, count = (QUICK_LOAD_S, UNDISTURBED // 10) if place.quick else (LOAD_S, UNDISTURBED)
        found = await _overload(place.url(engine), connections, seconds=seconds, undisturbed=count)
        print(engine, found, file=sys.stderr, flush=True)
        _measured[engine, connections] = found
    return _measured[engine, connections]


def figure(connections: int, ours: Callable[[Overload], float], other: Callable[[Overload], float]) -> Open:
    @asynccontextmanager
    async def opened(place: Place, engine: str) -> AsyncIterator[Ways]:
        found = await _once(place, engine, connections)
        yield Ways(ours=_always(ours(found)), other=_always(other(found)))

    return opened


def _always(value: float) -> Callable[[], Awaitable[float]]:
    async def give() -> float:
        return value

    return give


async def _put_out(store: Store, port: int, count: int) -> None:
    store = store.tenant("-")
    endpoint = Endpoint(id="ep", url=f"http://127.0.0.1:{port}/hook", created_at=store.clock.now())
    endpoint.secrets = [EndpointSecrets(Vault.from_settings(KEYS)).seal(endpoint, new_secret())]
    await store.commit(put(endpoint))
    outbox, gate = Outbox(store), asyncio.Semaphore(BATCH)

    async def send() -> None:
        async with gate:
            await outbox.send(Event(type="thing.made", body=MESSAGE), [endpoint])

    await asyncio.gather(*(send() for _ in range(count)))


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """What happened while a long queue was delivered: the most memory in MB, and deliveries a second."""

    rss_max: float
    delivered: float
    machine_load: float


async def _drain(url: str, count: int, *, seconds: float) -> Drain:
    with receiving() as port:
        store = await open_store(url, OUTBOX_MODELS.all)
        await store.migrate()
        await _put_out(store, port, count)
        await store.close()
        async with _serving(url) as server:
            await asyncio.sleep(seconds)
            rss_max = server.rss_max
        store = await open_store(url, OUTBOX_MODELS.all)
        sent = Query(Delivery).where("endpoint_id", "==", "ep").where("status", "==", "delivered")
        delivered = await store.tenant("-").count(sent.order_by("-created_at"))
        await store.close()
    return Drain(rss_max=rss_max, delivered=delivered / seconds, machine_load=os.getloadavg()[0])


_drained: dict[str, Drain] = {}


def drain_figure(ours: Callable[[Drain], float], limit: float) -> Open:
    @asynccontextmanager
    async def opened(place: Place, engine: str) -> AsyncIterator[Ways]:
        if engine not in _drained:
            seconds, count = place.scale(DRAIN_S, QUICK_DRAIN_S), place.scale(DELIVERIES, QUICK_DELIVERIES)
            _drained[engine] = await _drain(place.url(engine), count, seconds=seconds)
            print(engine, _drained[engine], file=sys.stderr, flush=True)
        yield Ways(ours=_always(ours(_drained[engine])), other=_always(limit))

    return opened


_ENGINES = ("sqlite full", "postgres")


def _rows(connections: int) -> list[Workload]:
    name = f"webhooks from {connections:,} connections"
    most = Goal(1.0, at_most=True)
    return [
        Workload(
            name=f"{name}: handled", engines=_ENGINES, unit="messages/s", goal=Goal(HANDLED_SHARE_MIN),
            other_name="undisturbed", open=figure(connections, lambda o: o.handled, lambda o: o.undisturbed),
        ),
        Workload(
            name=f"{name}: p99 of /health", engines=_ENGINES, unit="ms", goal=most, other_name="limit",
            open=figure(connections, lambda o: o.health_p99_ms, lambda o: HEALTH_P99_MS_MAX),
        ),
        Workload(
            name=f"{name}: memory growth", engines=_ENGINES, unit="MB", goal=most, other_name="limit",
            open=figure(connections, lambda o: o.rss_max - o.rss_start, lambda o: GROWTH_MB_MAX),
        ),
    ]  # fmt: skip


WORKLOADS = [
    *_rows(600),
    *_rows(3_000),
    Workload(
        name="100,000 pending deliveries: memory", engines=_ENGINES, unit="MB",
        goal=Goal(1.0, at_most=True), other_name="limit",
        open=drain_figure(lambda drain: drain.rss_max, DELIVERIES_MB_MAX),
        quick_name="5,000 pending deliveries: memory",
    ),
    Workload(
        name="100,000 pending deliveries: delivered meanwhile", engines=_ENGINES, unit="deliveries/s",
        goal=Goal(1.0), other_name="least",
        open=drain_figure(lambda drain: drain.delivered, DELIVERED_PER_S_MIN),
        quick_name="5,000 pending deliveries: delivered meanwhile",
    ),
]  # fmt: skip
