"""`holdfast copy` beside a process that writes, killed again and again: what arrives is what was written.

`HOLDFAST_COPIED` says how many documents there are at first on SQLite and PostgreSQL (3,000).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.model import Document
from holdfast.store import Query, Store
from holdfast.store_copy import Copy
from tests.faults.controlled_process import ROOT, run_processes
from tests.faults.copy_writer import DOCUMENTS, PARCELS, Bill, Parcel, fill

COUNT = int(os.environ.get("HOLDFAST_COPIED", "3000"))
KILLS = 4
WRITTEN_BETWEEN = 60
PATIENCE_S = 120.0
ALL: list[type[Document]] = [*DOCUMENTS, Copy]


async def start(source: str, target: str, *options: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-m", "holdfast", "copy", "--from", source, "--to", target,
        "--models", "tests.faults.copy_writer", *options,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def seen_in(target: Store) -> tuple[int, int]:
    """How many processes have begun, and how much is written."""
    found = await target.get(Copy, "copy")
    return (0, 0) if found is None else (found.doc.runs, found.doc.written)


def _further(now: tuple[int, int], *, than: tuple[int, int]) -> bool:
    return now[0] > than[0] and now[1] >= than[1] + WRITTEN_BETWEEN


async def kill_on_the_way(source: str, target: str, seen: Store) -> int:
    """Start a copy, and kill it once it has written some more; gives how much it had written by then."""
    before = await seen_in(seen)
    process = await start(source, target, "--walks", "1000")
    async with asyncio.timeout(PATIENCE_S):
        # Polled, because only the target tells how far the other process is; of one that was killed before,
        # a commit may still land.
        while not _further(await seen_in(seen), than=before):
            if process.returncode is not None:
                # In step for a moment, on a machine too busy to let the writer write.
                assert process.returncode == 0, await process.communicate()
                process = await start(source, target, "--walks", "1000")
            await asyncio.sleep(0.005)
    process.kill()
    await process.communicate()
    assert process.returncode == -9
    return (await seen_in(seen))[1]


async def finish(source: str, target: str) -> dict[str, Any]:
    process = await start(source, target, "--final", "--json")
    out, err = await process.communicate()
    assert process.returncode == 0, err
    answer: dict[str, Any] = json.loads(out)
    return answer


async def bills(store: Store) -> dict[str, dict[str, int]]:
    found = [item.doc async for item in store.privileged().scan(Query(Bill).limit(500))]
    return {state: {b.id: b.count for b in found if b.status == state} for state in ("open", "paid")}


async def parcels(store: Store) -> dict[str, Parcel]:
    return {item.doc.id: item.doc async for item in store.scan(Query(Parcel))}


@pytest.mark.parametrize(
    ("source", "target", "count", "pause_s"),
    [
        pytest.param("sqlite", "postgres", COUNT, 0.002, id="sqlite to postgres"),
        pytest.param("postgres", "sqlite", COUNT, 0.002, id="postgres to sqlite"),
        pytest.param("sqlite", "firestore", 300, 0.01, id="sqlite to firestore"),
    ],
)
async def test_a_copy_killed_again_and_again_beside_a_writer_arrives_whole(
    request: pytest.FixtureRequest, source: str, target: str, count: int, pause_s: float
) -> None:
    ours: str = request.getfixturevalue(f"{source}_url")
    theirs: str = request.getfixturevalue(f"{target}_url")
    one = await open_store(ours, DOCUMENTS)
    await one.migrate()
    await fill(one, count)
    other = await open_store(theirs, ALL)
    await other.migrate()
    order = {"url": ours, "count": count, "pause_s": pause_s}
    async with run_processes("tests.faults.copy_writer", "write", order) as (writer,):
        assert await writer.hear() == "writing"
        reached = [await kill_on_the_way(ours, theirs, other) for _ in range(KILLS)]
        assert reached == sorted(reached)
        writer.say("stop")
        told = json.loads(await writer.hear())
    answer = await finish(ours, theirs)
    marker = await other.get(Copy, "copy")
    assert marker is not None
    assert (answer["state"], marker.doc.state) == ("finished", "finished")
    assert marker.doc.runs > KILLS
    assert await bills(other) == {"open": told["open"], "paid": told["paid"]}
    arrived = await parcels(other)
    assert arrived == await parcels(one)
    assert sum(parcel.trips for parcel in arrived.values()) == told["trips"]
    assert sum(parcel.fence for parcel in arrived.values()) == told["trips"]
    assert {one["collection"]: one["documents"] for one in answer["proof"]} == {
        "bills": len(told["open"]) + len(told["paid"]), "parcels": PARCELS,
    }  # fmt: skip
    await one.close()
    await other.close()


async def test_the_command_in_step_says_to_stop_the_writers_and_then_verifies(
    sqlite_url: str, postgres_url: str
) -> None:
    store = await open_store(sqlite_url, DOCUMENTS)
    await store.migrate()
    await fill(store, 300)
    await store.close()
    steps = (
        ((), 0, "stop the writers now, then run this again with --final"),
        (("--verify",), 0, "the same on both sides: 305 documents"),
        (("--final",), 0, "finished: every document is the same on both sides"),
    )
    for options, code, words in steps:
        process = await start(sqlite_url, postgres_url, *options)
        out, err = await process.communicate()
        assert (process.returncode, words in (out + err).decode()) == (code, True), (out, err)
