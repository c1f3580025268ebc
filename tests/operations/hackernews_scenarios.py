"""Scenarios for the operations of hackernews, against the simulated Hacker News."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from holdfast.services.hackernews.operations import HackerNews
from holdfast.simulators.hackernews import AddAccount, AddStories
from holdfast.testing import ManualClock
from tests.operations.commit_log import CommitLog
from tests.operations.scenarios import World, scenario
from tests.services.hackernews.harness import Harness, news_harness

_REQUEST = "the request is on record before Hacker News is asked; what it answers is stored batch by batch"


@contextlib.asynccontextmanager
async def _news(world: World) -> AsyncIterator[Harness]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with news_harness(f"sqlite:///{home / 'news.db'}", ManualClock(), home) as harness:
            harness.hackernews.run(AddStories(count=20, days=3))
            world.log = CommitLog(harness.runtime.store)
            yield harness


@scenario(HackerNews.sign_in)
async def _(world: World) -> None:
    async with _news(world) as news:
        news.hackernews.run(AddAccount(acct="pg", pw="secret"))
        cookie = await world.act(news.operations.sign_in(news.by, "pg", password="secret"))
        assert (await news.operations.visitors.verify(cookie)).caller is not None


@scenario(HackerNews.sign_out)
async def _(world: World) -> None:
    async with _news(world) as news:
        cookie = await news.operations.visitors.begin("pg")
        visitor = await news.operations.visitors.verify(cookie)
        assert visitor.caller is not None
        await world.act(news.operations.sign_out(news.runtime.operator(visitor.caller, "-")))
        assert (await news.operations.visitors.verify(cookie)).caller is None


@scenario(HackerNews.hide)
async def _(world: World) -> None:
    async with _news(world) as news:
        assert await world.act(news.operations.hide(news.by, "pg", [8_863, 8_864])) == 2


@scenario(HackerNews.unhide)
async def _(world: World) -> None:
    async with _news(world) as news:
        await news.operations.hides.add("pg", [8_863])
        assert await world.act(news.operations.unhide(news.by, "pg", 8_863))


@scenario(HackerNews.run_worker, follow_up=("Story", "StoryRound"), why=_REQUEST)
async def _(world: World) -> None:
    async with _news(world) as news:
        assert (await world.act(news.operations.run_worker(news.by))).new == 20


@scenario(HackerNews.clear_cache)
async def _(world: World) -> None:
    async with _news(world) as news:
        await news.ids("Day")
        await world.act(news.operations.clear_cache(news.by))


@scenario(HackerNews.backfill, follow_up=("CheckpointDocument", "Story"), why=_REQUEST)
async def _(world: World) -> None:
    async with _news(world) as news:
        ids = sorted(news.hackernews.state.items)
        doing = news.operations.backfill(news.by, first_id=ids[0], last_id=ids[-1])
        assert (await world.act(doing)).stored == 20
