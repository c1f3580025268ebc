"""Other ways to put events out: huey on SQLite, PGQueuer on PostgreSQL, each as its documentation tunes it.

huey: full sync as ours has it, threads for sending, the shortest waits; its consumer is another process.
PGQueuer: batches of a hundred on a connection pool, sending by the same sender as ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from http.client import HTTPConnection
from typing import Any, NamedTuple

import asyncpg
from huey import SqliteHuey  # type: ignore[import-untyped]
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from holdfast import ids
from holdfast.kit.outbox import Sign, WebhookSigner, new_secret
from holdfast.net import AddressGuard, OutgoingRequest, RawSender

PutOut = Callable[[bytes], Coroutine[Any, Any, None]]
CALLERS = 100
HUEY_WORKERS = 8


class Peer(NamedTuple):
    """How to put an event out, and in what to run a turn of it."""

    put_out: PutOut
    turn: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext


def open_huey(path: str, port: int, sign: Sign) -> tuple[SqliteHuey, Callable[[str], Any]]:
    huey = SqliteHuey("bench", filename=path, fsync=True, results=False, timeout=60)
    kept = threading.local()

    @huey.task()  # type: ignore[untyped-decorator]
    def deliver(body: str) -> None:
        link = getattr(kept, "link", None)
        if link is None:
            link = kept.link = HTTPConnection("127.0.0.1", port)
        headers = dict(sign(ids.ulid(), 1_760_000_000, body.encode()))
        link.request("POST", "/hook", body.encode(), headers)
        link.getresponse().read()

    return huey, deliver


def _start_consumer(path: str, port: int) -> subprocess.Popen[bytes]:
    # Imported, not run as a script: huey names a task by its module, which must be the same on both sides.
    code = f"from bench.peers import consume; consume({path!r}, {port})"
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)


@contextlib.asynccontextmanager
async def through_huey(path: str, port: int) -> AsyncIterator[Peer]:
    consumer = _start_consumer(path, port)

    @contextlib.contextmanager
    def turn() -> Iterator[None]:
        # At rest its threads look for work every millisecond, and take processor time from the others.
        consumer.send_signal(signal.SIGCONT)
        try:
            yield
        finally:
            consumer.send_signal(signal.SIGSTOP)

    _, deliver = open_huey(path, port, WebhookSigner([new_secret()]).headers)
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(CALLERS) as callers:

        async def put_out(body: bytes) -> None:
            await loop.run_in_executor(callers, deliver, body.decode())

        yield Peer(put_out, turn)
    consumer.kill()
    consumer.wait()


@contextlib.asynccontextmanager
async def through_pgqueuer(url: str, port: int) -> AsyncIterator[Peer]:
    sender, sign = RawSender(AddressGuard(allow=["127.0.0.1"])), WebhookSigner([new_secret()]).headers
    target = f"http://127.0.0.1:{port}/hook"
    async with asyncpg.create_pool(url, min_size=20, max_size=20) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        worker = PgQueuer(AsyncpgPoolDriver(pool))

        @worker.entrypoint("deliver")
        async def deliver(job: Job) -> None:
            body = job.payload or b""
            headers = tuple(sign(str(job.id), 1_760_000_000, body))
            await sender.send(OutgoingRequest("POST", target, headers, body, 5.0, 65_536))

        running = asyncio.create_task(worker.run(dequeue_timeout=timedelta(seconds=30), batch_size=CALLERS))

        async def put_out(body: bytes) -> None:
            await queries.enqueue("deliver", body)

        yield Peer(put_out)
        worker.shutdown.set()
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            await asyncio.wait_for(running, 10)
    await sender.close()


def consume(path: str, port: int) -> None:
    huey, _ = open_huey(path, port, WebhookSigner([new_secret()]).headers)
    consumer = huey.create_consumer(
        workers=HUEY_WORKERS, periodic=False, initial_delay=0.001, backoff=1.0, max_delay=0.001
    )
    consumer.run()
