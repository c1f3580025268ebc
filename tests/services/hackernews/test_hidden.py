"""Hidden stories: on every device at once, idempotent, and cheap for a reader who hid very many."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from holdfast.app import open_store
from holdfast.errors import BadIdError, InvalidError
from holdfast.services.hackernews.hidden_stories import ADDED_MAX, HiddenStories
from holdfast.services.hackernews.models import DOCUMENTS, HiddenStory
from holdfast.services.hackernews.operations import LOOKUP_MIN
from holdfast.store import Store, put
from holdfast.store.io_counters import IO_COUNTERS
from holdfast.testing import ManualClock
from tests.services.hackernews.harness import Harness, a_story, store_stories


@pytest.fixture
async def devices(any_url: str, clock: ManualClock) -> AsyncIterator[tuple[HiddenStories, HiddenStories]]:
    """Two processes on one store."""
    stores = [await open_store(any_url, DOCUMENTS, clock=clock) for _ in range(2)]
    await stores[0].migrate()
    yield HiddenStories(stores[0]), HiddenStories(stores[1])
    for store in stores:
        await store.close()


async def test_what_is_hidden_on_one_device_is_hidden_on_the_other_at_once(
    devices: tuple[HiddenStories, HiddenStories],
) -> None:
    one, other = devices
    assert await other.among("pg", [1, 2, 3]) == set()
    assert await one.add("pg", [2]) == 1
    assert await other.among("pg", [1, 2, 3]) == {2}
    assert await other.remove("pg", 2)
    assert await one.among("pg", [1, 2, 3]) == set()
    assert await one.among("someone", [2]) == set()


async def test_hiding_twice_is_hiding_once_and_keeps_the_first_time(
    devices: tuple[HiddenStories, HiddenStories], clock: ManualClock
) -> None:
    one, other = devices
    await one.add("pg", [7])
    before = await one.page("pg")
    await clock.advance(60)
    assert await asyncio.gather(*(device.add("pg", [7, 7]) for device in (one, other) * 5)) == [0] * 10
    assert await one.page("pg") == before
    assert not await one.remove("pg", 8)


async def test_hidden_stories_are_listed_latest_first_page_by_page(
    devices: tuple[HiddenStories, HiddenStories],
) -> None:
    one, other = devices
    for story_id in (5, 3, 9, 4):
        await one.add("pg", [story_id])
    first = await other.page("pg", limit=3)
    rest = await other.page("pg", limit=3, cursor=first.cursor)
    assert [entry.id for entry in (*first.hidden, *rest.hidden)] == [4, 9, 3, 5]
    assert rest.cursor is None


async def test_any_mixture_on_two_devices_is_what_a_set_would_be(
    devices: tuple[HiddenStories, HiddenStories], clock: ManualClock
) -> None:
    dice, expected = random.Random(5), set[int]()
    for _ in range(60):
        device, ids = dice.choice(devices), dice.sample(range(40), 3)
        match dice.randrange(4):
            case 0:
                assert await device.add("pg", ids) == len(set(ids) - expected)
                expected |= set(ids)
            case 1:
                assert await device.remove("pg", ids[0]) == (ids[0] in expected)
                expected.discard(ids[0])
            case 2:
                await clock.advance(0.001)
        for each in devices:
            assert await each.among("pg", range(40)) == expected


async def test_what_a_browser_hid_before_sign_in_is_merged_in_one_call(
    devices: tuple[HiddenStories, HiddenStories],
) -> None:
    one, other = devices
    await one.add("pg", [10, 11])
    assert await other.add("pg", list(range(1_000))) == 998
    assert len(await one.among("pg", range(2_000))) == 1_000
    with pytest.raises(InvalidError, match="at most"):
        await one.add("pg", list(range(ADDED_MAX + 1)))


async def test_names_and_ids_that_cannot_be_are_refused(sqlite_url: str, clock: ManualClock) -> None:
    store = await open_store(sqlite_url, DOCUMENTS, clock=clock)
    hidden = HiddenStories(store)
    for name in ("", "a/b", "x" * 41, "né", "a b", "../x", "a\n"):
        with pytest.raises(BadIdError):
            await hidden.add(name, [1])
    for story_id in (-1, 10**10, True):
        with pytest.raises(InvalidError):
            await hidden.add("pg", [story_id])
    await store.close()


async def test_documents_that_another_program_wrote_are_hidden_too(
    sqlite_url: str, clock: ManualClock
) -> None:
    store: Store = await open_store(sqlite_url, DOCUMENTS, clock=clock)
    await store.migrate()
    await store.commit(put(HiddenStory(name="dang", story_id="42345678", added_at=1)))
    assert await HiddenStories(store).among("dang", [42_345_678, 1]) == {42_345_678}
    await store.close()


async def test_a_page_is_full_without_what_the_reader_hid(quick_harness: Harness, clock: ManualClock) -> None:
    news = quick_harness
    await store_stories(news.runtime.store, [a_story(n, score=n, at=clock.now()) for n in range(1, 1_401)])
    await news.operations.hides.add("pg", list(range(401, 1_301)))
    shown = await news.ids("Day", reader="pg")
    assert shown == [*range(1_400, 1_300, -1), *range(400, 0, -1)]
    assert await news.ids("Day", reader="pg", limit=50, skip=90) == [
        *range(1_310, 1_300, -1),
        *range(400, 360, -1),
    ]
    assert await news.ids("Day", reader="pg", skip=500) == []
    assert len(await news.ids("Day")) == 500


async def test_a_warm_page_of_a_reader_costs_one_read_however_much_is_hidden(
    quick_harness: Harness, clock: ManualClock
) -> None:
    news = quick_harness
    await store_stories(news.runtime.store, [a_story(n, score=n, at=clock.now()) for n in range(1, 600)])
    for start in range(10_000, 20_000, 5_000):
        await news.operations.hides.add("pg", list(range(start, start + 5_000)))
    first = await news.ids("Day", reader="pg", limit=100)
    before = IO_COUNTERS.reads
    assert await news.ids("Day", reader="pg", limit=100) == first
    assert IO_COUNTERS.reads - before == 1
    # One more hidden elsewhere is one more read, and a few for the stories that move up.
    await HiddenStories(news.runtime.store).add("pg", [first[0]])
    before = IO_COUNTERS.reads
    assert await news.ids("Day", reader="pg", limit=100) == [*first[1:], first[-1] - 1]
    assert IO_COUNTERS.reads - before == 2 + LOOKUP_MIN
