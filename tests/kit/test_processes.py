"""The registry of living processes: who counts as living, who is refused, what is filled again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from holdfast.app import open_store
from holdfast.errors import IncompatibleReleaseError
from holdfast.kit.processes import BEAT_S, LIVE_S, Process, ProcessRegistry
from holdfast.kit.processes.takeover import SILENT_S, SilenceObserver
from holdfast.store import Query, create
from holdfast.testing import ManualClock
from tests.faults.release_models import RELEASES, NewCrate, OldCrate
from tests.kit.eventually import until_found

Open = Callable[[str], Awaitable[ProcessRegistry]]


@pytest.fixture
async def open_release(kit_url: str, clock: ManualClock) -> AsyncIterator[Open]:
    """Opens a store as a release declares it; closed without a farewell, like a process that was killed."""
    stores = []

    async def open_one(name: str) -> ProcessRegistry:
        stores.append(await open_store(kit_url, RELEASES[name], clock=clock))
        return ProcessRegistry(stores[-1], version=name)

    yield open_one
    for store in stores:
        await store.close()


async def test_a_killed_process_counts_as_living_for_half_a_minute(
    open_release: Open, clock: ManualClock
) -> None:
    killed, other = await open_release("1"), await open_release("3")
    await killed.start()
    clock.tick(LIVE_S - 1)
    with pytest.raises(IncompatibleReleaseError, match=r"Holdfast 1.*crates at schema version 1"):
        await other.start()
    assert [one.id for one in await other.living()] == [killed.id]
    clock.tick(2)
    await other.start()
    assert [one.id for one in await killed.living()] == [other.id]
    await other.close()
    assert await killed.living() == []


async def test_what_a_process_writes_that_was_silent_for_long_is_found(
    open_release: Open, clock: ManualClock
) -> None:
    old, new = await open_release("1"), await open_release("2")
    await old.start()
    clock.tick(LIVE_S + 1)
    await new.start()
    await old.store.commit(create(OldCrate(id="late", year=1900, labels=["a"])))
    await old.beat()
    await old.close()
    await new.beat()

    async def found() -> bool:
        page = await new.store.query(Query(NewCrate).where("labels", "array-contains", "a"))
        return [doc.id for doc in page.docs] == ["late"]

    await until_found(found)
    await new.close()


async def test_a_process_that_wakes_up_on_a_newer_store_ends(open_release: Open, clock: ManualClock) -> None:
    old, other = await open_release("1"), await open_release("3")
    await old.start()
    clock.tick(LIVE_S + 1)
    await other.start()
    await clock.advance(BEAT_S)
    await asyncio.wait_for(old.refused.wait(), 30)
    assert old.refusal is not None
    assert "crates is stored at schema version 2" in old.refusal.message
    assert [one.id for one in await other.living()] == [other.id]
    await other.close()


def _process(id: str, seen_at: datetime) -> Process:
    return Process(id=id, host="h", pid=1, version="1", release_id="r", started_at=seen_at, seen_at=seen_at)


def test_a_heartbeat_that_stands_still_while_others_go_on_is_that_of_a_process_that_is_gone() -> None:
    observer, start = SilenceObserver(), datetime(2026, 1, 1, tzinfo=UTC)
    silent: list[str] = []
    for second in range(0, 10, 2):
        beating = _process("beating", start + timedelta(seconds=second))
        # Its own clock is far ahead, and stands still with it.
        gone = _process("gone", start + timedelta(hours=1))
        silent = observer.observe([beating, gone], float(second))
        assert silent == (["gone"] if second >= SILENT_S else [])
    assert observer.observe([], 10.0) == []


def test_after_an_outage_of_the_store_nobody_looks_gone() -> None:
    observer, start = SilenceObserver(), datetime(2026, 1, 1, tzinfo=UTC)
    assert observer.observe([_process("other", start)], 0.0) == []
    assert observer.observe([_process("other", start)], 60.0) == []
    assert observer.observe([_process("other", start)], 62.0) == []
    assert observer.observe([_process("other", start + timedelta(seconds=63))], 64.0) == []
