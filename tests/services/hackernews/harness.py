"""The service against the simulated Hacker News, on a store of the test's choice."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from holdfast.clock import Clock
from holdfast.config import load_config
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.runtime import Runtime
from holdfast.services.hackernews import service
from holdfast.services.hackernews.domain.selection import StoriesQuery
from holdfast.services.hackernews.operations import HackerNews
from holdfast.simulators.hackernews import HackerNewsSimulator


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
    url: str, clock: Clock, home: Path, *, hackernews: HackerNewsSimulator, **settings: Any
) -> AsyncIterator[Harness]:
    """One more process on the store."""
    table = {"enabled": True, "api_url": hackernews.api_url, "site_url": hackernews.url, **settings}
    config = load_config({"home": home, "store": url}, environ={})
    config = msgspec.structs.replace(config, services={"hackernews": table})
    runtime = await Runtime.open(config, services=[service], clock=clock)
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
