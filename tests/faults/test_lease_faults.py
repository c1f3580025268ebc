"""Leases while their holders are paused and killed: the store lets nobody in who came before."""

from __future__ import annotations

import asyncio
import itertools
import json
import os

import pytest

from holdfast.kit import NO_TENANT
from holdfast.kit.leases import Leases
from holdfast.store import Query, Store
from tests.faults.controlled_process import ControlledProcess, run_processes
from tests.faults.lease_worker import Ledger, Line, opened, writes_line

# In the normal run a short history; 10,000 turns take half a minute on SQLite and two on PostgreSQL.
TURNS = int(os.environ.get("HOLDFAST_LEASE_TURNS", "300"))
FIRESTORE_TURNS = int(os.environ.get("HOLDFAST_LEASE_TURNS_FIRESTORE", "80"))
TTL_S = 0.4
# Long enough that a busy machine renews it in time.
HELD_S = 3.0
WORKER = "tests.faults.lease_worker"

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)


async def test_the_late_write_of_a_paused_holder_is_refused_by_the_store(url: str) -> None:
    async with opened(url) as root:
        await root.migrate()
        store, leases = root.tenant(NO_TENANT), Leases(root)
        async with run_processes(WORKER, "late_writer", {"url": url, "ttl_s": HELD_S, "me": "old"}) as (old,):
            assert await old.hear() == "held"
            old.pause()
            new = await leases.acquire("x", ttl_s=30, owner="new", wait_s=60)
            assert new is not None
            await store.commit(new.guard(), *await writes_line(store, new, holder="new"))
            old.say("write")
            old.resume()
            said = await old.end()
        # Either its block was cancelled first or its write went out first; neither may get through.
        assert set(said) <= {"refused", "lost"}
        assert "lost" in said
        lines = await _lines(store, "x")
    assert [(line.holder, line.fence) for line in lines] == [("new", new.fence)]


async def test_a_killed_holders_lease_is_taken_over_when_its_time_is_over(url: str) -> None:
    async with opened(url) as root:
        await root.migrate()
        leases = Leases(root)
        async with run_processes(WORKER, "late_writer", {"url": url, "ttl_s": HELD_S, "me": "old"}) as (old,):
            assert await old.hear() == "held"
            await old.kill()
            assert await leases.acquire("x", owner="new", wait_s=60) is not None


async def test_no_two_holders_writes_are_interleaved_in_a_long_history(url: str) -> None:
    turns = FIRESTORE_TURNS if url.startswith("firestore") else TURNS
    names = [f"name-{n}" for n in range(8)]
    order = {"url": url, "ttl_s": TTL_S, "names": names, "turns": turns // 4, "tasks": 5, "stops": 2}
    async with opened(url) as root:
        await root.migrate()
        store = root.tenant(NO_TENANT)
        async with run_processes(WORKER, "turns", *(order | {"me": f"w{n}"} for n in range(4))) as workers:
            reports = await _while_pausing(workers)
        written = [await _lines(store, name) for name in names]
        counts = [await store.get(Ledger, name) for name in names]
    done = sum(report["done"] for report in reports)
    assert done == turns // 20 * 20
    assert sum(report["refused"] for report in reports) > 0, "no pause hit a holder: the test showed nothing"
    for lines, ledger in zip(written, counts, strict=True):
        assert ledger is not None
        assert [line.number for line in lines] == list(range(1, ledger.doc.entries + 1))
        blocks = [list(block) for _, block in itertools.groupby(lines, key=lambda line: line.fence)]
        fences = [block[0].fence for block in blocks]
        assert fences == sorted(set(fences)), "a holder wrote after a later one"
        assert all(len({line.holder for line in block}) == 1 and len(block) <= 2 for block in blocks)
    assert sum(len(lines) for lines in written) >= 2 * done


async def _while_pausing(workers: list[ControlledProcess]) -> list[dict[str, int]]:
    """Let them work; whoever stopped dead goes on only after longer than a lease lasts."""
    for worker in workers:
        assert await worker.hear() == "open"
    for worker in workers:
        worker.say("go")
    ends = [asyncio.create_task(worker.end(within_s=300)) for worker in workers]
    while not all(end.done() for end in ends):
        paused = [worker for worker in workers if worker.paused]
        await asyncio.wait(ends, timeout=TTL_S * 1.2 if paused else 0.01, return_when=asyncio.ALL_COMPLETED)
        for worker in paused:
            worker.resume()
    return [json.loads(said[-1]) for said in await asyncio.gather(*ends)]


async def _lines(store: Store, name: str) -> list[Line]:
    query = Query(Line).under(name).order_by("number").limit(10_000)
    return (await store.query(query)).docs
