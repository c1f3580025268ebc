"""The lists of timespans: always what the plain reference shows, and computed once however many ask."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.app import open_store
from holdfast.clock import from_us
from holdfast.kit.cache import CacheGeneration
from holdfast.kit.leases import LeaseDocument
from holdfast.model import Document
from holdfast.services.hackernews import span_query, story_cache
from holdfast.services.hackernews.domain import ranking
from holdfast.services.hackernews.domain.ranking import RankedStory
from holdfast.services.hackernews.domain.spans import SPANS
from holdfast.services.hackernews.models import DOCUMENTS, CachedSpan, Story
from holdfast.services.hackernews.story_cache import StoryCache
from holdfast.services.hackernews.story_store import key_of
from holdfast.store import Store, delete, put
from holdfast.testing import ManualClock
from tests.kit.eventually import until
from tests.services.hackernews.cache_reference import LENGTH_S, CacheReference, Known
from tests.services.hackernews.harness import a_story, store_stories, while_time_passes

CLASSES: Final[tuple[type[Document], ...]] = (*DOCUMENTS, CacheGeneration, LeaseDocument)
EXAMPLES: Final = int(os.environ.get("HOLDFAST_HISTORIES", "25"))
KEPT_MAX: Final = 6  # few, so that lists overflow
JUMPS_S: Final = (1.0, 20.0, 59.0, 61.0, 1_799.0, 1_801.0, 7_200.0, 86_399.0, 86_401.0, 2 * 86_400.0,
                  7 * 86_400.0 + 1, 29 * 86_400.0, 31 * 86_400.0)  # fmt: skip


@asynccontextmanager
async def _opened(url: str, clock: ManualClock) -> AsyncIterator[Store]:
    store = await open_store(url, CLASSES, clock=clock)
    await store.migrate()
    try:
        yield store
    finally:
        await store.close()


class History:
    """Two processes on one store, and the reference beside them; each step happens to both."""

    def __init__(self, stores: Sequence[Store], clock: ManualClock) -> None:
        self._stores, self._clock = stores, clock
        self._caches = [self._cache(store) for store in stores]
        self._reference = CacheReference(KEPT_MAX, self._now_s)
        self._next_id = 1

    @property
    def _now_s(self) -> float:
        return self._clock.now_us() / 1e6

    def _cache(self, store: Store) -> StoryCache:
        return StoryCache(store, stale_s=0.0)

    async def step(self, act: str, process: int, span: str, number: int) -> None:
        self._reference.now_s = self._now_s
        match act:
            case "read":
                await self._read(process, span)
            case "wait":
                await self._clock.advance(JUMPS_S[number % len(JUMPS_S)])
            case "post":
                # Not in any list by itself: the next computation finds it.
                at_s = self._now_s - [0, 3_600, 80_000, 86_400 * 6, 86_400 * 300][number % 5]
                await self._write([Known(self._take_id(), number % 40, at_s)], set())
            case "work":
                await self._work(process, number)
            case "clear":
                await self._caches[process].clear()
                self._reference.clear(process)
            case "crash":
                self._caches[process] = self._cache(self._stores[process])
                self._reference.crash(process)

    def _take_id(self) -> int:
        self._next_id += 1
        return self._next_id

    async def _read(self, process: int, span: str) -> None:
        shown = (await self._caches[process].stories(SPANS[span])).stories
        expected = self._reference.read(process, span)
        assert [(one.id, one.score) for one in shown] == [(one.id, one.score) for one in expected]
        assert all(one.time / 1_000 > self._now_s - LENGTH_S[span] for one in shown)

    async def _work(self, process: int, number: int) -> None:
        """A new story, another score for some, and now and then one that is gone."""
        dice = random.Random(number)
        known = list(self._reference.stored.values())
        changed = [Known(one.id, dice.randrange(60), one.at_s) for one in known if dice.random() < 0.4]
        changed.append(Known(self._take_id(), dice.randrange(60), self._now_s - dice.choice([0, 7_200])))
        removed = {one.id for one in known if dice.random() < 0.1} - {one.id for one in changed}
        await self._write(changed, removed)
        self._reference.apply(process, changed, removed)
        await self._caches[process].apply([_ranked(one) for one in changed], removed=removed)

    async def _write(self, changed: Sequence[Known], removed: set[int]) -> None:
        store = self._stores[0]
        for one in changed:
            self._reference.stored[one.id] = one
        writes = [put(_stored(one)) for one in changed]
        await store.commit(*writes, *(delete(Story, key_of(one)) for one in removed))


def _stored(one: Known) -> Story:
    return a_story(one.id, score=one.score, at=from_us(round(one.at_s * 1e6)))


def _ranked(one: Known) -> RankedStory:
    return span_query.ranked(_stored(one))


@pytest.fixture(autouse=True)
def _short_lists(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "history" in request.node.name:
        monkeypatch.setattr(ranking, "KEPT_MAX", KEPT_MAX)
        # Both ways to compute a list are taken.
        monkeypatch.setattr(span_query, "RANGE_MAX", KEPT_MAX)


_ACTS = st.sampled_from(["read", "read", "read", "wait", "wait", "post", "work", "work", "clear", "crash"])
_STEPS = st.tuples(_ACTS, st.integers(0, 1), st.sampled_from(sorted(SPANS)), st.integers(0, 1_000))


@settings(max_examples=EXAMPLES, deadline=None)
@given(steps=st.lists(_STEPS, min_size=5, max_size=40))
def test_any_history_of_two_processes_shows_what_the_reference_shows(
    steps: list[tuple[str, int, str, int]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_play(f"sqlite:///{folder}/news.db", steps))


async def _play(url: str, steps: Sequence[tuple[str, int, str, int]]) -> None:
    clock = ManualClock()
    async with _opened(url, clock) as one, _opened(url, clock) as other:
        history = History([one, other], clock)
        for step in steps:
            await history.step(*step)
        for span in SPANS:
            for process in (0, 1):
                await history.step("read", process, span, 0)


@pytest.mark.parametrize("engine", ["postgres", "firestore"])
async def test_a_long_history_shows_the_same_on_other_engines(
    request: pytest.FixtureRequest, engine: str
) -> None:
    dice = random.Random(7)
    acts = ["read", "read", "read", "wait", "wait", "post", "work", "work", "clear", "crash"]
    steps = [
        (dice.choice(acts), dice.randrange(2), dice.choice(list(SPANS)), dice.randrange(1_000))
        for _ in range(60)
    ]
    await _play(request.getfixturevalue(f"{engine}_url"), steps)


# -- single promises --------------------------------------------------------------------------------


@pytest.fixture
async def stores(any_url: str, clock: ManualClock) -> AsyncIterator[tuple[Store, Store]]:
    async with _opened(any_url, clock) as one, _opened(any_url, clock) as other:
        yield one, other


@pytest.fixture
async def two(sqlite_url: str, clock: ManualClock) -> AsyncIterator[tuple[Store, Store]]:
    async with _opened(sqlite_url, clock) as one, _opened(sqlite_url, clock) as other:
        yield one, other


async def _ids(cache: StoryCache, span: str) -> list[int]:
    return [story.id for story in (await cache.stories(SPANS[span])).stories]


async def test_two_hundred_readers_in_two_processes_cause_one_computation(
    stores: tuple[Store, Store], clock: ManualClock
) -> None:
    await store_stories(stores[0], [a_story(n, score=n, at=clock.now()) for n in range(1, 40)])
    caches = [StoryCache(store) for store in stores]
    readers = asyncio.gather(*(_ids(caches[n % 2], "Year") for n in range(200)))
    shown = await while_time_passes(clock, _wait(readers))
    assert {tuple(one) for one in shown} == {tuple(range(39, 0, -1))}
    # One of the year, and one of the day that is merged into it.
    assert sum(cache.cache.stats.loads for cache in caches) == 2


async def _wait(future: Any) -> Any:
    return await future


async def test_a_story_of_the_day_stays_in_longer_lists_when_the_day_is_over(
    stores: tuple[Store, Store], clock: ManualClock
) -> None:
    one, other = (StoryCache(store, stale_s=0) for store in stores)
    assert await _ids(one, "Year") == []
    await store_stories(stores[0], [a_story(5, score=9, at=clock.now())])
    await clock.advance(1_801)
    assert await _ids(one, "Year") == [5]
    await clock.advance(86_401)
    assert await _ids(one, "Day") == []
    # Also for a process that saw neither, and long before the year is computed again.
    assert await _ids(one, "Year") == await _ids(other, "Year") == [5]
    assert (await one.stories(SPANS["Year"])).cached_at < clock.now() - timedelta(days=1)


async def test_a_story_leaves_a_list_the_moment_it_is_too_old(
    two: tuple[Store, Store], clock: ManualClock
) -> None:
    await store_stories(two[0], [a_story(1, score=9, at=clock.now()), a_story(2, score=5, at=clock.now())])
    cache = StoryCache(two[0])
    await clock.advance(3_600)
    await store_stories(two[0], [a_story(3, score=1, at=clock.now())])
    assert await _ids(cache, "Week") == [1, 2, 3]
    await clock.advance(7 * 86_400 - 3_601)
    assert await _ids(cache, "Week") == [1, 2, 3]
    await clock.advance(1)
    assert await _ids(cache, "Week") == [3]


async def test_an_update_reaches_the_memory_of_another_process_within_a_minute(
    two: tuple[Store, Store], clock: ManualClock
) -> None:
    story = a_story(1, score=9, at=clock.now())
    await store_stories(two[0], [story])
    one, other = (StoryCache(store) for store in two)
    for cache in (one, other):
        await _ids(cache, "Month")
    story.score = 77
    await one.apply([span_query.ranked(story)])
    await clock.advance(59)
    assert (await one.stories(SPANS["Month"])).stories[0].score == 77
    await clock.advance(1)
    assert (await other.stories(SPANS["Month"])).stories[0].score == 77


async def test_promotion_into_memory_does_not_renew_a_lists_time(
    two: tuple[Store, Store], clock: ManualClock
) -> None:
    one, other = StoryCache(two[0], stale_s=0), StoryCache(two[1], stale_s=0)
    await _ids(one, "Day")
    await clock.advance(1_790)
    assert (await other.stories(SPANS["Day"])).level == "store"
    await clock.advance(10)
    assert (await other.stories(SPANS["Day"])).level == "source"


async def test_a_stale_list_is_served_while_it_is_computed_again(
    two: tuple[Store, Store], clock: ManualClock
) -> None:
    cache = StoryCache(two[0])
    await _ids(cache, "Day")
    await store_stories(two[0], [a_story(1, score=9, at=clock.now())])
    await clock.advance(1_801)
    found = await cache.stories(SPANS["Day"])
    assert (list(found.stories), found.stale) == ([], True)
    await until(lambda: cache.cache.stats.loads == 2, within_s=30)
    await until(lambda: not cache.cache._refreshes, within_s=30)
    assert await _ids(cache, "Day") == [1]


class _Gate:
    """Holds a computation after its query, until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, span: str) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()
        query: Callable[..., Any] = span_query.best_stories

        async def held(store: Store, asked: Any, **words: Any) -> Any:
            found = await query(store, asked, **words)
            if asked.name == span and not self.reached.is_set():
                self.reached.set()
                await self.open.wait()
            return found

        monkeypatch.setattr(story_cache, "best_stories", held)


@pytest.mark.parametrize("span", ["Day", "Year"])
async def test_a_computation_from_before_a_clear_brings_nothing_back_anywhere(
    two: tuple[Store, Store], clock: ManualClock, monkeypatch: pytest.MonkeyPatch, span: str
) -> None:
    store = two[0]
    one, other = (StoryCache(each) for each in two)
    await store_stories(store, [a_story(1, score=9, at=clock.now())])
    gate = _Gate(monkeypatch, span=span)
    old = asyncio.create_task(_ids(one, span))
    await asyncio.wait_for(gate.reached.wait(), 30)
    await store.commit(delete(Story, key_of(1)))
    await other.clear()
    fresh = asyncio.create_task(while_time_passes(clock, _all_ids(other)))
    await asyncio.sleep(0)
    gate.open.set()
    await old
    assert await fresh == {name: [] for name in SPANS}
    await clock.advance(61)
    assert await _all_ids(one) == await _all_ids(other) == {name: [] for name in SPANS}


async def _all_ids(cache: StoryCache) -> dict[str, list[int]]:
    return {name: await _ids(cache, name) for name in SPANS}


async def test_a_process_that_dies_while_computing_leaves_the_work_to_another(
    two: tuple[Store, Store], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store_stories(two[0], [a_story(1, score=9, at=clock.now())])
    gate = _Gate(monkeypatch, span="All")
    dying, other = StoryCache(two[0]), StoryCache(two[1])
    # Its lease is never released: it stands still for good, as a killed process does.
    frozen = asyncio.create_task(_ids(dying, "All"))
    await asyncio.wait_for(gate.reached.wait(), 30)
    assert await while_time_passes(clock, _ids(other, "All"), step_s=5.0) == [1]
    # Should it come back, it finds its lease gone and changes nothing.
    await store_stories(two[0], [a_story(2, score=99, at=clock.now())])
    gate.open.set()
    assert await while_time_passes(clock, _wait(frozen)) == [1]


async def test_a_list_too_large_for_a_document_is_cut_to_fit(
    two: tuple[Store, Store], clock: ManualClock
) -> None:
    url = "https://example.com/" + "x" * 2_000
    stories = [a_story(n, score=n, at=clock.now(), url=url) for n in range(1, 700)]
    await store_stories(two[0], stories)
    cache = StoryCache(two[0])
    shown = await _ids(cache, "Day")
    assert shown == list(range(699, 699 - len(shown), -1))
    assert 400 < len(shown) < 500
    stored = await two[0].get(CachedSpan, "Day")
    assert stored is not None
    assert len(stored.doc.value) == len(shown)


async def test_both_ways_to_compute_a_list_give_the_same(
    stores: tuple[Store, Store], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice, now = random.Random(3), clock.now()
    # Many scores are the same, and newer ids are not always later.
    await store_stories(stores[0], [
        a_story(n, score=dice.randrange(8), at=now - timedelta(seconds=dice.randrange(10 * 86_400)))
        for n in range(1, 300)
    ])  # fmt: skip
    monkeypatch.setattr(ranking, "KEPT_MAX", 50)
    now_ms = clock.now_us() // 1_000
    for span in SPANS.values():
        by_time = await span_query.best_stories(stores[0], span, now_ms=now_ms)
        with monkeypatch.context() as patch:
            patch.setattr(span_query, "RANGE_MAX", -1)
            patch.setattr(span_query, "_BY_SCORE", span_query._BY_SCORE.limit(50))
            by_score = await span_query.best_stories(stores[0], span, now_ms=now_ms)
        assert by_time == by_score
        assert len(by_time) == (50 if span.name != "Day" else len(by_time))
