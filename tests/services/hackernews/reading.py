"""The reader over a real socket, against the simulated Hacker News."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

from holdfast.clock import Clock
from holdfast.model.access import SERVICE
from holdfast.server import compose, settings
from holdfast.simulators.hackernews import AddAccount, AddStories
from tests.services.hackernews.harness import Harness, news_harness
from tests.serving import served

ACCOUNT: Final = {"acct": "pg", "pw": "correct-horse-7c1f"}
_OURS: Final = {"sec-fetch-site": "same-origin"}


@dataclass
class Reader:
    """A browser's requests: it keeps cookies and follows no redirect."""

    session: aiohttp.ClientSession
    base: str

    async def ask(self, method: str, path: str, **more: Any) -> tuple[int, Any, Mapping[str, str]]:
        """Status, JSON (or text) and headers of a response."""
        headers = {**_OURS, **more.pop("headers", {})}
        async with self.session.request(
            method, self.base + path, headers=headers, allow_redirects=False, **more
        ) as response:
            is_json = response.headers.get("content-type", "").startswith("application/json")
            return response.status, await (response.json() if is_json else response.text()), response.headers

    async def get(self, path: str, **more: Any) -> Any:
        status, body, _ = await self.ask("GET", path, **more)
        assert status == 200, body
        return body

    async def sign_in(self, **account: str) -> int:
        return (await self.ask("POST", "/api/v1/login", json={**ACCOUNT, **account}))[0]

    async def ids(self, query: str = "") -> list[int]:
        return [story["id"] for story in (await self.get(f"/api/v1/stories?{query}"))["stories"]]


@dataclass
class Site:
    """The service as it is served, with its parts behind it."""

    news: Harness
    address: str
    base: str
    sessions: contextlib.AsyncExitStack

    async def reader(self) -> Reader:
        """A browser that never was here."""
        jar = aiohttp.CookieJar(unsafe=True)
        return Reader(
            await self.sessions.enter_async_context(aiohttp.ClientSession(self.address, cookie_jar=jar)),
            self.base,
        )

    async def fetch(self) -> None:
        """A round of the worker."""
        by = self.news.runtime.operator(SERVICE, "-", actor="cli:walker")
        await self.news.operations.run_worker(by)


@contextlib.asynccontextmanager
async def reading(
    home: Path, clock: Clock, *, stories: int = 0, at_root: bool = False, url: str = "", **config: Any
) -> AsyncIterator[Site]:
    """The service with so many stories of the last three days."""
    url = url or f"sqlite:///{home / 'news.db'}"
    async with (
        news_harness(url, clock, home, config=config) as news,
        contextlib.AsyncExitStack() as sessions,
    ):
        news.hackernews.run(AddAccount(**ACCOUNT))
        surface = compose(news.runtime, at_root=at_root)
        surface.ready = True
        address = await sessions.enter_async_context(served(settings(surface)))
        site = Site(news, address, "" if at_root else "/hackernews", sessions)
        if stories:
            news.hackernews.run(AddStories(count=stories, days=3))
            await site.fetch()
        yield site
        surface.changes.close()
