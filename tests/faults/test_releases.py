"""Two releases on one store, in real processes: a roll-out, a rollback, and what must be refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.store import Query, Store
from tests.faults.controlled_process import ControlledProcess, run_processes
from tests.faults.release_models import RELEASES, NewCrate, OldCrate

WORKER = "tests.faults.release_worker"
REPORTS = 4

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


@asynccontextmanager
async def _release(url: str, name: str) -> AsyncIterator[ControlledProcess]:
    async with run_processes(WORKER, "write", {"url": url, "release": name}) as (process,):
        yield process


async def _commits(*processes: ControlledProcess) -> None:
    for _ in range(REPORTS):
        await asyncio.gather(*(process.hear_until("committed") for process in processes))


async def _stop(process: ControlledProcess) -> list[str]:
    """What failed until it stopped."""
    process.say("stop")
    return [line for line in await process.hear_until("over") if line.startswith("failed")]


@asynccontextmanager
async def _store(url: str, name: str) -> AsyncIterator[Store]:
    store = await open_store(url, RELEASES[name])
    try:
        yield store
    finally:
        await store.close()


async def _ids(store: Store, query: Query[Any]) -> set[str]:
    return {item.key async for item in store.scan(query.limit(500))}


async def test_a_release_is_rolled_out_and_back_without_a_failed_commit(url: str) -> None:
    async with _release(url, "1") as old, _release(url, "2") as new:
        await old.hear_until("started")
        await new.hear_until("started")
        async with _release(url, "1") as older:
            # It starts beside the newer one, as after a crash or in a rollback.
            await older.hear_until("started")
            await _commits(old, new, older)
            assert await _stop(older) == []
        assert await _stop(old) == []
        async with _store(url, "2") as store:
            await _until_filled(store, new)
        assert await _stop(new) == []
    async with _release(url, "1") as old:
        await old.hear_until("started")
        assert await _stop(old) == []
    async with _store(url, "1") as store:
        everything = await _ids(store, Query(OldCrate))
        assert await _ids(store, Query(OldCrate).where("year", "==", 1900)) == everything


async def _until_filled(store: Store, new: ControlledProcess) -> None:
    """The newer release alone finds by its indexes what the older one has written, and only that."""
    old_ids = {id for id in await _ids(store, Query(NewCrate)) if id.startswith("1-")}
    assert old_ids
    async with asyncio.timeout(30):
        while True:
            new.say("beat")
            by_rank = await _ids(store, Query(NewCrate).where("rank", "==", 7))
            by_label = await _ids(store, Query(NewCrate).where("labels", "array-contains", "kept"))
            if old_ids <= by_rank and old_ids <= by_label:
                break
            await asyncio.sleep(0.05)
    made = await _ids(store, Query(NewCrate).where("labels", "array-contains", "made"))
    assert not {id for id in made if id.startswith("1-")}


async def test_a_release_that_stores_otherwise_waits_for_the_others_and_locks_them_out(
    url: str,
) -> None:
    async with _release(url, "1") as old:
        await old.hear_until("started")
        async with _release(url, "3") as other:
            refusal = await other.hear()
            assert refusal.startswith("refused: ")
            assert "(Holdfast 1)" in refusal
            assert "crates at schema version 1 instead of 2" in refusal
        await _commits(old)
        assert await _stop(old) == []
    async with _release(url, "3") as other:
        await other.hear_until("started")
        await other.kill()
    async with _release(url, "1") as old:
        refusal = await old.hear()
        assert "crates is stored at schema version 2, this release knows 1" in refusal
        assert "Start Holdfast 3 or newer" in refusal
