"""What pages and rounds cost on Firestore, counted in documents read and written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.services.hackernews.domain.spans import WORKER_BATCH_MAX
from holdfast.store.commit import Commit, Outcome
from holdfast.store.io_counters import IO_COUNTERS
from holdfast.testing import ManualClock
from tests.services.hackernews.harness import Harness, a_story, news_harness, opened, store_stories

LISTS = 5


@pytest.fixture
async def news(firestore_url: str, clock: ManualClock, tmp_path: Path) -> AsyncIterator[Harness]:
    async with news_harness(firestore_url, clock, tmp_path) as made:
        yield made


async def test_a_cold_year_page_costs_one_read_and_one_of_the_day_and_a_warm_one_none(
    news: Harness, firestore_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    ages = [timedelta(hours=n) for n in range(0, 3_000, 10)]
    await store_stories(
        news.runtime.store, [a_story(n, score=n, at=clock.now() - age) for n, age in enumerate(ages, 1)]
    )
    before = IO_COUNTERS.reads
    shown = await news.ids("Year")
    assert IO_COUNTERS.reads - before > 300
    async with opened(firestore_url, clock, tmp_path, hackernews=news.hackernews) as cold:
        before = IO_COUNTERS.reads
        await cold.ids("Day")
        assert IO_COUNTERS.reads - before == 1
        before = IO_COUNTERS.reads
        assert await cold.ids("Year") == shown
        assert IO_COUNTERS.reads - before == 1
        before = IO_COUNTERS.reads
        assert await cold.ids("Year") == shown
        assert IO_COUNTERS.reads - before == 0
    async with opened(firestore_url, clock, tmp_path, hackernews=news.hackernews) as cold:
        before = IO_COUNTERS.reads
        assert await cold.ids("Year") == shown
        assert IO_COUNTERS.reads - before == 2


class _Commits:
    """The number of writes of every commit that an engine makes."""

    def __init__(self, harness: Harness) -> None:
        self.sizes: list[int] = []
        engine = harness.runtime.store.engine
        self._commit = engine.commit
        engine.commit = self._counted  # type: ignore[method-assign]

    async def _counted(self, commits: Sequence[Commit]) -> list[Outcome]:
        self.sizes += [len(commit.writes) for commit in commits]
        return await self._commit(commits)


async def test_a_round_reads_and_writes_no_more_than_its_batches(news: Harness, clock: ManualClock) -> None:
    now, store = clock.now(), news.runtime.store
    old = now - timedelta(days=3)
    await store_stories(store, [
        a_story(n, score=5, at=old, updated=old + timedelta(seconds=n)) for n in range(1, 431)
    ])  # fmt: skip
    for n in range(1, 431):
        news.hackernews.state.post(id=n, age_s=3 * 86_400)
    news.hackernews.state.listed = lambda name: []  # type: ignore[method-assign]
    commits = _Commits(news)
    result = await news.operations.worker.run()
    assert result.refreshed == {"Day": 0, "Week": WORKER_BATCH_MAX, "Month": WORKER_BATCH_MAX}
    # Two batches of stale stories, and few besides: the newest id, the last round, the lists, the lease.
    assert 2 * WORKER_BATCH_MAX <= result.reads <= 2 * WORKER_BATCH_MAX + 20 + LISTS
    assert max(commits.sizes) <= 102
    assert result.writes <= 2 * WORKER_BATCH_MAX + 30
    # A round without anything to do costs a handful.
    await clock.advance(61)
    for _ in range(2):
        result = await news.operations.worker.run()
    assert (result.refreshed["Week"], result.reads <= 15) == (0, True), result.reads
