"""Rounds of the worker: what is missing is fetched, what is stale refreshed, within limits, one at a time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError, RetryLaterError
from holdfast.services.hackernews.domain.spans import WORKER_BATCH_MAX
from holdfast.services.hackernews.models import Story, StoryRound
from holdfast.simulators.hackernews import AddStories, ChangeItem, InjectedFault, Outage, PostItem
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.kit.eventually import until, until_found
from tests.services.hackernews.harness import (
    Harness,
    a_story,
    news_harness,
    opened,
    store_stories,
    while_time_passes,
)

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


async def _stored(harness: Harness) -> dict[int, Story]:
    found = [one.doc async for one in harness.runtime.store.scan(Query(Story).order_by("-id").limit(1_000))]
    return {one.id: one for one in found}


def _posted(harness: Harness, **fields: Any) -> int:
    item: Any = harness.hackernews.run(PostItem(**fields))
    return int(item["id"])


def _asked(harness: Harness) -> list[int]:
    """The items asked for since the last look, each time they were."""
    paths = [call.path for call in harness.hackernews.calls if "/item/" in call.path]
    harness.hackernews.calls.clear()
    return [int(path.rsplit("/", 1)[1].removesuffix(".json")) for path in paths]


async def test_a_round_stores_new_stories_and_the_next_fetches_none_again(harness: Harness) -> None:
    harness.hackernews.run(AddStories(count=60, days=2))
    result = await harness.operations.worker.run()
    stored = await _stored(harness)
    assert (result.new, len(stored), result.status) == (60, 60, "done")
    one = stored[max(stored)]
    item = harness.hackernews.state.items[one.id]
    assert (one.by, one.score, one.title, one.url) == (item.by, item.score, item.title, item.url)
    assert (one.time.timestamp(), one.descendants) == (item.time, item.descendants)
    assert one.key == f"{one.id:010}"
    _asked(harness)
    assert (await harness.operations.worker.run()).new == 0
    assert _asked(harness) == []


async def test_stories_of_an_outage_are_fetched_afterwards(
    quick_harness: Harness, clock: ManualClock
) -> None:
    news = quick_harness
    news.hackernews.run(AddStories(count=20, days=1))
    await news.operations.worker.run()
    news.hackernews.run(Outage())
    with pytest.raises(RetryLaterError):
        await while_time_passes(clock, news.operations.worker.run())
    missed = [_posted(news, title=f"While it was down {n}") for n in range(30)]
    (last, *_) = await news.operations.rounds()
    assert (last.status, "503" in last.error) == ("failed", True)
    news.hackernews.run(Outage(on=False))
    assert (await news.operations.worker.run()).new == 30
    assert set(missed) <= set(await _stored(news))


async def test_a_gap_that_no_list_reaches_is_reported(quick_harness: Harness) -> None:
    news = quick_harness
    before = _posted(news)
    await news.operations.worker.run()
    news.hackernews.run(AddStories(count=700, days=1))
    result = await news.operations.worker.run()
    newest = news.hackernews.state.listed("newstories")
    assert result.gap is not None
    assert (result.gap.first_id, result.gap.last_id) == (before + 1, min(newest) - 1)
    assert (await news.operations.worker.run()).gap is None


async def test_a_failed_item_stops_no_other_and_is_fetched_by_the_next_round(
    quick_harness: Harness, clock: ManualClock
) -> None:
    news = quick_harness
    ids = [_posted(news) for _ in range(30)]
    bad = ids[7]
    news.hackernews.inject(InjectedFault(path=f"/item/{bad}.json", status=500, count=2))
    result = await while_time_passes(clock, news.operations.worker.run())
    assert (result.new, result.failed, result.retry) == (29, 1, {str(bad): 1})
    # It is in no list any more, and still not forgotten.
    news.hackernews.run(ChangeItem(id=bad, dead=True))
    assert bad not in news.hackernews.state.listed("newstories")
    news.hackernews.run(ChangeItem(id=bad, dead=False))
    news.hackernews.state.items[bad].type = "poll"
    result = await news.operations.worker.run()
    assert (result.new, result.retry) == (1, {})
    assert bad in await _stored(news)


async def test_an_item_that_is_not_there_yet_is_fetched_once_it_is(quick_harness: Harness) -> None:
    news = quick_harness
    story_id = _posted(news)
    item = news.hackernews.state.items.pop(story_id)
    news.hackernews.state.listed = lambda name: [story_id]  # type: ignore[method-assign]
    assert (await news.operations.worker.run()).failed == 1
    news.hackernews.state.items[story_id] = item
    assert (await news.operations.worker.run()).new == 1


async def test_dead_deleted_job_and_other_items_are_no_stories_and_a_poll_is_one(
    quick_harness: Harness,
) -> None:
    news = quick_harness
    kinds: dict[str, int] = {
        kind: _posted(news, type=kind, score=500) for kind in ("story", "job", "poll", "comment", "pollopt")
    }
    dead, deleted = _posted(news), _posted(news)
    news.hackernews.run(ChangeItem(id=dead, dead=True))
    news.hackernews.run(ChangeItem(id=deleted, deleted=True))
    every = [*kinds.values(), dead, deleted]
    news.hackernews.state.listed = lambda name: every  # type: ignore[method-assign]
    result = await news.operations.worker.run()
    assert set(await _stored(news)) == {kinds["story"], kinds["poll"]}
    assert (result.new, result.other, result.gone, result.failed) == (2, 3, 2, 0)
    _asked(news)
    await news.operations.worker.run()
    # A job is not asked for again; a dead story may have been revived, since a list has it.
    assert set(_asked(news)) == {dead, deleted}


async def test_a_story_that_dies_leaves_the_store_and_every_list(
    harness: Harness, clock: ManualClock
) -> None:
    story_id, other = _posted(harness, score=50), _posted(harness, score=40)
    await harness.operations.worker.run()
    assert await harness.ids("Day") == await harness.ids("Year") == [story_id, other]
    harness.hackernews.run(ChangeItem(id=story_id, dead=True))
    await clock.advance(3_601)
    assert (await harness.operations.worker.run()).gone == 1
    assert await harness.ids("Day") == await harness.ids("Year") == [other]
    assert set(await _stored(harness)) == {other}


async def test_new_scores_and_comments_reach_the_cached_lists(harness: Harness, clock: ManualClock) -> None:
    first, second = _posted(harness, score=50), _posted(harness, score=40)
    await harness.operations.worker.run()
    assert await harness.ids("Week") == [first, second]
    harness.hackernews.run(ChangeItem(id=second, score=400, descendants=99))
    await clock.advance(3_601)
    result = await harness.operations.worker.run()
    assert result.refreshed == {"Day": 2, "Week": 0, "Month": 0}
    for span in ("Day", "Week"):
        assert await harness.ids(span) == [second, first]


async def test_each_tier_refreshes_its_oldest_first_and_no_more_than_its_cap(
    harness: Harness, clock: ManualClock
) -> None:
    now, store = clock.now(), harness.runtime.store
    tiers = {"Day": (20 * HOUR, 2 * HOUR), "Week": (3 * DAY, 7 * HOUR), "Month": (20 * DAY, 49 * HOUR)}
    due: dict[str, list[int]] = {}
    story_id = 1_000
    for name, (age, stale) in tiers.items():
        due[name] = list(range(story_id, story_id + 230))
        # The larger the id, the longer not updated.
        await store_stories(store, [
            a_story(one, score=5, at=now - age, updated=now - stale - timedelta(seconds=one))
            for one in due[name]
        ])  # fmt: skip
        story_id += 1_000
    fresh = {
        9_001: (20 * HOUR, HOUR - timedelta(seconds=1)), 9_002: (3 * DAY, 5 * HOUR),
        9_003: (20 * DAY, 47 * HOUR), 9_004: (29 * DAY, 28 * DAY),
    }  # fmt: skip
    await store_stories(store, [
        a_story(one, score=5, at=now - age, updated=now - stale) for one, (age, stale) in fresh.items()
    ])  # fmt: skip
    for one in (*(one for ids in due.values() for one in ids), *fresh):
        harness.hackernews.state.post(id=one, age_s=86_400 * 300)
    harness.hackernews.state.listed = lambda name: []  # type: ignore[method-assign]
    result = await harness.operations.worker.run()
    assert result.refreshed == dict.fromkeys(tiers, WORKER_BATCH_MAX)
    expected = [one for ids in due.values() for one in sorted(ids, reverse=True)[:WORKER_BATCH_MAX]]
    asked = _asked(harness)
    assert sorted(asked) == sorted(expected)
    # Twenty are under way at once, so neighbours may change places, and no more.
    assert max(abs(expected.index(one) - n) for n, one in enumerate(asked)) < 100


async def test_one_round_at_a_time_in_all_processes(any_url: str, clock: ManualClock, tmp_path: Path) -> None:
    async with (
        news_harness(any_url, clock, tmp_path) as one,
        opened(any_url, clock, tmp_path, hackernews=one.hackernews) as other,
    ):
        story_id = _posted(one)
        one.hackernews.run(ChangeItem(id=story_id, delay_s=5.0))
        first = asyncio.create_task(one.operations.worker.run())
        await until(lambda: bool(one.hackernews.calls), within_s=30)
        with pytest.raises(RetryLaterError, match="held by another"):
            await other.operations.worker.run()
        assert (await while_time_passes(clock, asyncio.wait_for(first, 30))).new == 1
        assert (await other.operations.worker.run()).new == 0


async def test_a_round_that_died_is_followed_by_one_that_completes_it(
    quick_harness: Harness, sqlite_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    news = quick_harness
    ids = [_posted(news) for _ in range(150)]
    slow = min(ids)  # in the second batch: new stories come newest first
    news.hackernews.run(ChangeItem(id=slow, delay_s=3_000.0))
    dying = asyncio.create_task(news.operations.worker.run())

    async def hundred_done() -> bool:
        return any(one.done == 100 for one in await news.operations.rounds())

    await until_found(hundred_done)
    # Its progress is visible while it runs.
    rounds = await news.operations.rounds()
    assert (rounds[0].status, rounds[0].done, rounds[0].total) == ("running", 100, 150)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    assert len(await _stored(news)) == 100
    news.hackernews.run(ChangeItem(id=slow, delay_s=0.0))
    await clock.advance(61)
    async with opened(sqlite_url, clock, tmp_path, hackernews=news.hackernews) as other:
        assert (await other.operations.worker.run()).new == 50
    last, died = await news.operations.rounds()
    assert (last.status, died.status) == ("done", "failed")


async def test_a_round_shows_its_counts_in_metrics_and_health(
    quick_harness: Harness, clock: ManualClock
) -> None:
    news = quick_harness
    _posted(news)
    await news.operations.worker.run()
    values = {
        (one.name, *one.labels.values()): one.value
        for family in news.operations.metrics.collect()
        for one in family.samples
    }
    assert values["holdfast_hackernews_items_total", "new"] == 1
    assert values["holdfast_hackernews_rounds_total", "done"] == 1
    assert values["holdfast_hackernews_round_items", "done"] == 1
    assert (await news.runtime.health()).status == "ok"
    await clock.advance(4 * 3_600)
    health = await news.runtime.health()
    assert (health.status, "no round began" in " ".join(health.reasons)) == ("degraded", True)


async def test_nothing_is_fetched_unless_enabled(
    sqlite_url: str, clock: ManualClock, tmp_path: Path, quick_harness: Harness
) -> None:
    async with opened(
        sqlite_url, clock, tmp_path, hackernews=quick_harness.hackernews, enabled=False
    ) as news:
        with pytest.raises(ConfigError, match="enabled"):
            await news.operations.worker.run()
        assert news.runtime.parts["hackernews"].jobs == []
        assert await news.ids("Day") == []
    assert [job.cron for job in quick_harness.runtime.parts["hackernews"].jobs] == ["*/30 * * * *"]
    assert await quick_harness.runtime.store.count(Query(StoryRound).order_by("-started_at")) == 0
