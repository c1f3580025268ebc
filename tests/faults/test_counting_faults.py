"""Counting, limiting and logging from eight processes at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg
import pytest

from holdfast.app import open_store
from holdfast.kit.audit import Audit
from holdfast.kit.metering import Meter
from tests.faults.counting_worker import DOCUMENTS, TENANT

EVENTS = int(os.environ.get("HOLDFAST_METERED_EVENTS", "40000"))
COUNTS = {"sqlite": EVENTS, "postgresql": EVENTS // 4}
PROCESSES = 8
BOTH_SUMS = """
SELECT (SELECT coalesce(sum("value"), 0) FROM holdfast_usage_sums),
       (SELECT count(*) FROM holdfast_usage_events)
"""


async def _start(role: str, url: str, amount: int) -> asyncio.subprocess.Process:
    store = await open_store(url, DOCUMENTS)
    await store.migrate()
    await store.close()
    order = [role, url, str(amount), str(PROCESSES)]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.counting_worker", *order, cwd=Path(__file__).parents[2],
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def _finish(processes: asyncio.subprocess.Process) -> list[int]:
    said, _ = await processes.communicate()
    assert processes.returncode == 0
    answers = [int(line) for line in said.split()]
    assert len(answers) == PROCESSES
    return answers


@contextlib.asynccontextmanager
async def _looking(url: str) -> AsyncIterator[Callable[[], Awaitable[tuple[int, int]]]]:
    """Reads the sums and the ledger at one moment, past Holdfast, by SQL of its own."""
    if url.startswith("sqlite"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.set_busy_timeout(60_000)

        async def from_file() -> tuple[int, int]:
            summed, events = await asyncio.to_thread(lambda: connection.execute(BOTH_SUMS).fetchall()[0])
            return int(str(summed)), int(str(events))

        yield from_file
        connection.close()
        return
    server = await asyncpg.connect(url)

    async def from_server() -> tuple[int, int]:
        row = await server.fetchrow(BOTH_SUMS)
        assert row is not None
        return int(row[0]), int(row[1])

    yield from_server
    await server.close()


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_sums_are_exact_at_every_moment_while_eight_processes_count(url: str) -> None:
    amount = COUNTS[url.partition(":")[0]] // PROCESSES
    processes = await _start("count", url, amount)
    looks = 0
    done = asyncio.ensure_future(_finish(processes))
    async with _looking(url) as look:
        while not done.done():
            summed, events = await look()
            assert summed == events
            looks += 1
            await asyncio.wait([done], timeout=0.05)
    counted = await done
    store = await open_store(url, DOCUMENTS)
    meter = Meter(store, tenant_id=TENANT)
    october, november = await meter.month("runs", "2026-10"), await meter.month("runs", "2026-11")
    drift = [*await meter.rebuild("2026-10"), *await meter.rebuild("2026-11")]
    await store.close()
    distinct = {f"p{p if n % 5 else p ^ 1}-{n}": n for p in range(PROCESSES) for n in range(amount)}
    late = sum(n % 2 == 0 for n in distinct.values())
    assert sum(counted) == len(distinct)
    assert (october, november) == (late, len(distinct) - late)
    assert drift == []
    assert looks > 1


@pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)
async def test_eight_processes_starting_at_a_limit_never_exceed_it(url: str) -> None:
    got = await _finish(await _start("take", url, 40))
    assert sum(got) == 100


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_eight_processes_log_into_one_unbroken_chain(url: str) -> None:
    logged = await _finish(await _start("log", url, 40))
    store = await open_store(url, DOCUMENTS)
    verdict = await Audit(store, tenant_id=TENANT).verify()
    await store.close()
    assert verdict.intact
    assert verdict.events == sum(logged) == PROCESSES * 40
