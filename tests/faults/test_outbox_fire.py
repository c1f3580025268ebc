"""Delivery under fire: a receiver that fails three in ten, workers killed again and again, nothing lost.

`HOLDFAST_FIRE_EVENTS` sets how many events (4,000 unless told).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.app import open_store
from holdfast.kit.outbox import OUTBOX_MODELS, BreakerPolicy, Delivery, Endpoint, Event, Outbox, RetryPolicy
from holdfast.store import Query, Store, put

ROOT = Path(__file__).parents[2]
EVENTS = int(os.environ.get("HOLDFAST_FIRE_EVENTS", "4000"))
ENDPOINTS = 4
TIMEOUT_S = 1.0
OPEN_STATES = ("pending", "sending", "failed")


def start(module: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *words], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextlib.contextmanager
def receiver(log: Path) -> Iterator[int]:
    process = start("tests.faults.outbox_receiver", str(log))
    try:
        yield int(first_line(process))
    finally:
        process.kill()
        process.communicate()


@dataclass
class Crew:
    """Two workers, replaced as they are killed; remembers who was."""

    url: str
    killed: set[str] = field(default_factory=set)
    at_work: list[tuple[str, subprocess.Popen[str]]] = field(default_factory=list)
    hired: int = 0
    late: int = 0

    async def hire(self) -> None:
        self.hired += 1
        name = f"worker-{self.hired}"
        process = start("tests.faults.outbox_worker", self.url, name)
        self.at_work.append((name, process))
        await asyncio.to_thread(first_line, process)

    async def lose_one(self) -> None:
        name, process = self.at_work.pop(random.randrange(len(self.at_work)))
        process.send_signal(signal.SIGKILL)
        await asyncio.to_thread(process.communicate)
        self.killed.add(name)

    async def go_home(self) -> None:
        for _, process in self.at_work:
            process.send_signal(signal.SIGTERM)
        for _, process in self.at_work:
            said, _ = await asyncio.to_thread(process.communicate)
            self.late += int(said)
        self.at_work.clear()


async def under_fire(crew: Crew, finished: asyncio.Event) -> None:
    """Every second or two one of the two is killed and another takes its place."""
    while not finished.is_set():
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(random.uniform(1.0, 2.0)):
                await finished.wait()
        if not finished.is_set():
            await crew.lose_one()
            await crew.hire()


def body_of(number: int) -> bytes:
    return b'{"number": %d, "fill": "%s"}' % (number, b"x" * (number % 900))


async def put_out(store: Store, port: int) -> None:
    home = store.tenant("-")
    endpoints = [
        Endpoint(
            id=f"ep-{n}", url=f"http://127.0.0.1:{port}/{n}", created_at=store.clock.now(), concurrency=25,
            timeout_s=TIMEOUT_S, breaker=BreakerPolicy(failures=1_000),
            retry=RetryPolicy(waits_s=(0.2, 0.4, 0.8, 1.6)),
        )
        for n in range(ENDPOINTS)
    ]  # fmt: skip
    await home.commit(*(put(endpoint) for endpoint in endpoints))
    outbox = Outbox(store)

    async def caller(first: int) -> None:
        for number in range(first, EVENTS, 50):
            event = Event(id=f"evt-{number:06}", type="thing.made", body=body_of(number))
            await outbox.send(event, [endpoints[number % ENDPOINTS]])

    await asyncio.gather(*(caller(n) for n in range(50)))


async def all_finished(store: Store) -> None:
    open_now = Query(Delivery).where("status", "in", list(OPEN_STATES)).order_by("-created_at").limit(1)
    while (await store.tenant("-").query(open_now)).items:  # noqa: ASYNC110 - many processes, no signal
        await asyncio.sleep(0.1)


@dataclass
class Sent:
    fence: int
    worker: str
    digest: str
    fate: str


def read_log(log: Path) -> dict[str, list[Sent]]:
    sends: dict[str, list[Sent]] = defaultdict(list)
    for line in log.read_text().splitlines():
        event_id, fence, worker, digest, fate = line.split()
        sends[event_id].append(Sent(int(fence), worker, digest, fate))
    return sends


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_nothing_is_lost_or_doubled_under_fire(url: str, tmp_path: Path) -> None:
    log = tmp_path / "requests.log"
    store = await open_store(url, OUTBOX_MODELS.all)
    await store.migrate()
    crew, finished = Crew(url), asyncio.Event()
    with receiver(log) as port:
        await crew.hire()
        await crew.hire()
        fire = asyncio.create_task(under_fire(crew, finished))
        await put_out(store, port)
        await all_finished(store)
        finished.set()
        await fire
        await crew.go_home()
    sends = read_log(log)
    deliveries = await everything(store)
    await store.close()
    judge(deliveries, sends, crew)
    print(
        f"{len(deliveries)} events, {sum(map(len, sends.values()))} sends, {len(crew.killed)} workers killed"
    )


async def everything(store: Store) -> list[Delivery]:
    query = Query(Delivery).where("status", "in", ["delivered", "dead"]).order_by("-created_at").limit(1_000)
    return [item.doc async for item in store.tenant("-").scan(query)]


def judge(deliveries: list[Delivery], sends: dict[str, list[Sent]], crew: Crew) -> None:
    assert len(deliveries) == EVENTS
    assert crew.killed, "the test was over before anybody was killed"
    late = 0
    for delivery in deliveries:
        seen = sends[delivery.event_id]
        recorded = {attempt.fence: attempt for attempt in delivery.attempts}
        digest = hashlib.sha256(body_of(int(delivery.event_id[4:]))).hexdigest()[:16]
        assert {one.digest for one in seen} == {digest}
        fences = [one.fence for one in seen]
        assert len(fences) == len(set(fences)), f"{delivery.event_id}: one fencing number was used twice"
        if delivery.status == "delivered":
            assert any(one.fate in ("ok", "slow") for one in seen), delivery.event_id
        else:
            assert delivery.attempt_count == 5, delivery.event_id
        for one in seen:
            late += one.fence not in recorded and one.worker not in crew.killed
        good = [one for one in seen if one.fence in recorded and recorded[one.fence].status == 200]
        assert len(good) == (1 if delivery.status == "delivered" else 0)
    assert late <= crew.late, "something was sent again without a kill"
