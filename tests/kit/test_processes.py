"""The registry of living processes: who counts as living, who is refused, what is filled again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast.app import open_store
from holdfast.errors import IncompatibleReleaseError
from holdfast.kit.processes import BEAT_S, LIVE_S, ProcessRegistry
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
