"""The service against the simulated Hacker News, on a store of the test's choice."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.config import load_config
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.runtime import Runtime
from holdfast.services.hackernews import service
from holdfast.services.hackernews.domain.selection import StoriesQuery
from holdfast.services.hackernews.models import Story
from holdfast.services.hackernews.operations import HackerNews
from holdfast.simulators.hackernews import HackerNewsSimulator
from holdfast.store import Store, put
from holdfast.testing import ManualClock

T = TypeVar("T")


@dataclass
class Harness:
    hackernews: HackerNewsSimulator
    runtime: Runtime
    clock: Clock

    @property
    def operations(self) -> HackerNews:
        operations: HackerNews = self.runtime.parts["hackernews"].operations
        return operations

    @property
    def by(self) -> Operator:
        return self.runtime.operator(SERVICE, "-", actor="cli:walker")

    async def ids(self, timespan: str = "All", *, reader: str = "", **words: Any) -> list[int]:
        """The ids on a page."""
        page = await self.operations.stories(StoriesQuery(timespan=timespan, **words), reader=reader)
        return [story.id for story in page.stories]


@contextlib.asynccontextmanager
async def opened(
    url: str,
    clock: Clock,
    home: Path,
    *,
    hackernews: HackerNewsSimulator,
    config: Mapping[str, Any] = {},
    **settings: Any,
) -> AsyncIterator[Harness]:
    """One more process on the store."""
    table = {"enabled": True, "api_url": hackernews.api_url, "site_url": hackernews.url, **settings}
    loaded = load_config({"home": home, "store": url, **config}, environ={})
    loaded = msgspec.structs.replace(loaded, service_settings={"hackernews": table})
    runtime = await Runtime.open(loaded, services=[service], clock=clock)
    try:
        yield Harness(hackernews, runtime, clock)
    finally:
        await runtime.close()


@contextlib.asynccontextmanager
async def news_harness(url: str, clock: Clock, home: Path, **settings: Any) -> AsyncIterator[Harness]:
    """The service on an empty store, and a Hacker News without stories."""
    async with (
        HackerNewsSimulator(clock=clock) as hackernews,
        opened(url, clock, home, hackernews=hackernews, **settings) as harness,
    ):
        yield harness


def a_story(story_id: int, *, score: int, at: datetime, **fields: Any) -> Story:
    """A stored story."""
    usual: dict[str, Any] = {"by": "ada_l", "title": f"Story {story_id}", "updated": at}
    return Story(id=story_id, score=score, time=at, **(usual | fields))


async def store_stories(store: Store, stories: Iterable[Story]) -> None:
    """Store stories as the worker does, in batches."""
    writes = [put(story) for story in stories]
    for start in range(0, len(writes), 400):
        await store.commit(*writes[start : start + 400])


async def while_time_passes(clock: Clock, doing: Coroutine[Any, Any, T], *, step_s: float = 0.1) -> T:
    """Wait for something that itself waits by the test's clock."""
    assert isinstance(clock, ManualClock)
    task = asyncio.ensure_future(doing)
    async with asyncio.timeout(30):
        while not task.done():
            await asyncio.sleep(0.005)
            await clock.advance(step_s)
    return task.result()
