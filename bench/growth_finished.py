"""What does not grow with what is finished: the same acts beside 1,000 and beside 1,000,000 documents.

Each store has that many delivered events, handled messages and audit events. They are copies of one real
document of each kind, inserted past the engine; whatever is measured goes through it.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import uvicorn

from bench.bulk_load import postgres_load, sqlite_load
from bench.measure import SLOW_TURNS, Goal, Open, Place, Ways, Workload
from holdfast import ids
from holdfast.config import load_config
from holdfast.kit.access import ApiTokens
from holdfast.kit.audit import AuditEntry
from holdfast.kit.inbox import Inbox, InboxItem, Source
from holdfast.kit.outbox import Delivery, Endpoint, Event, Outbox
from holdfast.runtime import Runtime
from holdfast.server import compose, settings
from holdfast.store import Query, patch
from holdfast.webhook_verifier import Verified

SIZES: Final = (1_000, 100_000, 1_000_000)
QUICK_SIZES: Final = (1_000, 5_000, 20_000)
ASKED: Final = 100
PAGES_ASKED: Final = 30  # a page of the console takes many times as long
WAITING: Final = 20
_PLENTY: Final = {"caller_burst": 100_000, "address_burst": 100_000}
_TABLES: Final = ("holdfast_deliveries", "holdfast_inbox", "holdfast_audit")
_filled: dict[tuple[Place, str, int], tuple[str, Path]] = {}


class _Anybody:
    """Accepts every message under a new id."""

    def verify(self, headers: Any, body: bytes, now: Any) -> Verified:
        return Verified(ids.ulid())


SOURCE: Final = Source(name="bench", verifier=_Anybody())


class Subject(msgspec.Struct):
    """A runtime beside so many finished documents, and a client of its console."""

    runtime: Any
    client: Any
    endpoint: Endpoint


@asynccontextmanager
async def opened(url: str, home: Path) -> AsyncIterator[Subject]:
    config = load_config({"home": home, "store": url, "limits": _PLENTY}, environ={})
    runtime = await Runtime.open(config, services=[])
    surface = compose(runtime)
    surface.ready = True
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(settings(surface))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    token = await ApiTokens(runtime.store).create(f"bench-{ids.ulid()}", role="admin", tenant_id="-")
    address, who = f"http://127.0.0.1:{listener.getsockname()[1]}", {"authorization": f"Bearer {token}"}
    endpoint = Endpoint(id="ep", url="http://127.0.0.1:9/", created_at=runtime.store.clock.now())
    async with aiohttp.ClientSession(address, headers=who) as client:
        yield Subject(runtime, client, endpoint)
    server.should_exit = True
    await serving
    listener.close()
    await runtime.close()


# -- filling --------------------------------------------------------------------------------------


async def filled(place: Place, engine: str, count: int) -> tuple[str, Path]:
    """The URL and home of a store with so many finished documents of each kind; made once."""
    if (place, engine, count) not in _filled:
        url, home = place.url(engine), place.folder()
        async with opened(url, home) as subject:
            await _add_templates(subject)
        await _clone(url, count)
        await _add_waiting(url, home)
        _filled[place, engine, count] = url, home
    return _filled[place, engine, count]


async def _add_templates(subject: Subject) -> None:
    store, now = subject.runtime.store.tenant("-"), subject.runtime.store.clock.now()
    [id] = await Outbox(store).send(Event(type="thing.made", body=b'{"n":1}'), [subject.endpoint])
    for changes in (
        {"status": "sending"},
        {"status": "delivered", "next_attempt_at": None, "finished_at": now},
    ):
        await store.commit(patch(Delivery, id, changes=changes))
    receipt = await Inbox(subject.runtime.store).receive(SOURCE, {}, b'{"n":1}')
    done = {"status": "done", "due_at": None, "finished_at": now}
    await subject.runtime.store.privileged().commit(patch(InboxItem, receipt.item_id, changes=done))
    await append(subject)


async def _add_waiting(url: str, home: Path) -> None:
    async with opened(url, home) as subject:
        events = [Event(type="thing.made", body=b'{"n":1}') for _ in range(WAITING)]
        await Outbox(subject.runtime.store).send_many(events, [subject.endpoint])


async def _clone(url: str, count: int) -> None:
    """Insert copies of each table's only row, with keys of their own, past the engine."""
    if url.startswith("sqlite"):
        with sqlite_load(url, _TABLES, analyze=True) as file:
            for table in _TABLES:
                names = [row[1] for row in file.execute(f"PRAGMA table_info({table})") if row[1] != "_key"]
                columns = ", ".join(f'"{name}"' for name in names)
                file.execute(
                    f"INSERT INTO {table} (_key, {columns}) WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT"
                    f" n + 1 FROM i WHERE n < ?) SELECT _key || '~' || n, {columns} FROM i,"
                    f" (SELECT * FROM {table} LIMIT 1)",
                    (count,),
                )
        return
    async with postgres_load(url, _TABLES) as link:
        for table in _TABLES:
            rows = await link.fetch(
                "SELECT column_name FROM information_schema.columns WHERE table_name = $1"
                " AND table_schema = current_schema() AND column_name <> '_key' AND is_generated = 'NEVER'",
                table,
            )  # fmt: skip
            columns = ", ".join(f'"{row[0]}"' for row in rows)
            await link.execute(
                f"INSERT INTO {table} (_key, {columns}) SELECT _key || '~' || n, {columns} FROM"
                f" generate_series(1, $1::bigint) AS n, (SELECT * FROM {table} LIMIT 1) AS one",
                count,
            )  # fmt: skip


# -- acts -----------------------------------------------------------------------------------------


async def append(subject: Subject) -> None:
    entry = AuditEntry(actor="bench", action="bench.act", subject="thing-1")
    await subject.runtime.audit("-").append(entry)


async def claim(subject: Subject) -> None:
    """Claim all that wait, and give them back for the next time."""
    store = subject.runtime.store.privileged()
    taken = await store.claim_due(Delivery, limit=WAITING, lease_s=3_600, owner="bench")
    assert len(taken) == WAITING
    changes = {"status": "pending", "next_attempt_at": store.clock.now()}
    await store.settle([[patch(Delivery, one.key, changes=changes)] for one in taken])


async def get(subject: Subject) -> None:
    page = await subject.runtime.store.tenant("-").query(_delivered(1))
    assert await subject.runtime.store.tenant("-").get(Delivery, page.docs[0].id) is not None


async def page(subject: Subject) -> None:
    assert len((await subject.runtime.store.tenant("-").query(_delivered(20))).docs) == 20


def _delivered(limit: int) -> Query[Delivery]:
    return Query(Delivery).where("status", "==", "delivered").order_by("-created_at").limit(limit)


async def receive(subject: Subject) -> None:
    await Inbox(subject.runtime.store).receive(SOURCE, {}, b'{"n":1}')


async def overview(subject: Subject) -> None:
    async with subject.client.get("/console") as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()


Act = Callable[[Subject], Awaitable[None]]


async def _ms(subject: Subject, act: Act) -> float:
    """The median time of an act."""
    took = []
    for _ in range(PAGES_ASKED if act is overview else ASKED):
        start = time.perf_counter()
        await act(subject)
        took.append((time.perf_counter() - start) * 1_000)
    return statistics.median(took)


def _beside(step: int, act: Act) -> Open:
    @asynccontextmanager
    async def both(place: Place, engine: str) -> AsyncIterator[Ways]:
        sizes = QUICK_SIZES if place.quick else SIZES
        many, few = [await filled(place, engine, sizes[n]) for n in (step, 0)]
        async with opened(*many) as ours, opened(*few) as other:
            yield Ways(ours=lambda: _ms(ours, act), other=lambda: _ms(other, act))

    return both


WORKLOADS = [
    Workload(
        name=f"{act.__name__} beside {SIZES[step]:,} finished",
        quick_name=f"{act.__name__} beside {QUICK_SIZES[step]:,} finished",
        engines=("sqlite full", "postgres"), unit="ms", goal=Goal(1.3, at_most=True),
        other_name=f"beside {SIZES[0]:,}", open=_beside(step, act), turns=SLOW_TURNS,
    )
    for act in (claim, page, get, receive, append, overview)
    for step in (1, 2)
]  # fmt: skip
