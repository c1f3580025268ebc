"""A provider of channels to test against, and processes that crash at a chosen step.

The provider is as strict as Google's: it refuses an id twice, has no list and no extend call, and
stops a channel only for who knows its resource.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast

import msgspec

from holdfast.errors import InvalidError, NotFoundError, ReauthRequiredError, RetryLaterError
from holdfast.kit.channels import Channel, ChannelFields, Opened, Watch
from holdfast.providers.google_calendar import channel_token
from holdfast.store import Query, Store
from holdfast.store.port import Engine
from holdfast.testing import ManualClock

T = TypeVar("T")
KEY = b"a key of thirty-two bytes or so."


class Line(msgspec.Struct, frozen=True):
    watched_id: str
    resource_id: str
    ends_at: datetime


class FakeChannelProvider:
    """Holds channels as a provider does, and fails as told."""

    def __init__(self, clock: ManualClock, *, seed: int = 0) -> None:
        self.clock = clock
        self.chance = random.Random(seed)
        self.lines: dict[str, Line] = {}
        self.used: set[str] = set()
        self.revoked: set[str] = set()
        self.refused: set[str] = set()  # asked to open and not answered with a channel since the last one
        self.failing = 0.0
        self.retry_after_s = 0.0
        self.opens: Counter[str] = Counter()
        self.stops: Counter[str] = Counter()
        self.syncs: list[tuple[str, str]] = []
        self.opened = asyncio.Event()
        self.asked = asyncio.Event()
        self.pause: asyncio.Event | None = None  # between opening and answering
        self.delay: asyncio.Event | None = None  # between being asked and opening
        self.lose_next_answer = False
        self._asking: set[str] = set()

    def live(self, watched_id: str) -> list[str]:
        now = self.clock.now()
        return [id for id, line in self.lines.items() if line.watched_id == watched_id and line.ends_at > now]

    def all_live(self) -> dict[str, str]:
        now = self.clock.now()
        return {id: line.watched_id for id, line in self.lines.items() if line.ends_at > now}

    def forget_asking(self) -> None:
        """Let another ask while one is being answered: after its lease, as the test says."""
        self._asking.clear()

    async def open(self, watched_id: str, *, channel_id: str, token: str, ttl_s: float) -> Opened:
        assert watched_id not in self._asking, "two ask for one thing at the same time"
        self._asking.add(watched_id)
        self.refused.add(watched_id)
        self.asked.set()
        try:
            if self.delay is not None:
                await self.delay.wait()
            await self._trouble(watched_id)
            if channel_id in self.used:
                raise InvalidError("Channel id not unique")
            assert token == channel_token(KEY, channel_id)
            self.used.add(channel_id)
            line = Line(watched_id, f"resource of {watched_id}", self.clock.now() + timedelta(seconds=ttl_s))
            self.lines[channel_id] = line
            self.syncs.append((channel_id, line.resource_id))
            self.opens[watched_id] += 1
            self.opened.set()
            await self._trouble(watched_id, after=True)
        finally:
            self._asking.discard(watched_id)
        self.refused.discard(watched_id)
        return Opened(resource_id=line.resource_id, expires_at=line.ends_at)

    async def stop(self, watched_id: str, *, channel_id: str, resource_id: str) -> None:
        await self._trouble(watched_id)
        line = self.lines.get(channel_id)
        if not resource_id:
            raise InvalidError("resourceId is required")
        if line is None or line.resource_id != resource_id:
            raise NotFoundError("no such channel")
        del self.lines[channel_id]
        self.stops[watched_id] += 1

    async def _trouble(self, watched_id: str, *, after: bool = False) -> None:
        if self.pause is not None and after:
            await self.pause.wait()
        await asyncio.sleep(0)
        if watched_id in self.revoked and not after:
            raise ReauthRequiredError("invalid_grant")
        if after and self.lose_next_answer:
            self.lose_next_answer = False
            raise ConnectionResetError("the answer was lost")
        if self.chance.random() < self.failing / 2:
            if after:
                raise ConnectionResetError("the answer was lost")
            raise RetryLaterError("quota", after_s=self.retry_after_s or 1.0)


class CrashError(BaseException):
    """The process is gone: nothing may catch this."""


class Fuse:
    """Burns once before and once after each act on the world; at its end everything stops."""

    def __init__(self, left: int | None = None) -> None:
        self.left = left
        self.blown = False

    def burn(self) -> None:
        if self.left is not None and not self.blown:
            self.left -= 1
            self.blown = self.left < 0
        if self.blown:
            raise CrashError

    async def around(self, act: Callable[[], Awaitable[T]]) -> T:
        self.burn()
        answer = await act()
        self.burn()
        return answer


class FusedEngine:
    """An engine whose process may be gone before or after any write."""

    def __init__(self, engine: Engine, fuse: Fuse) -> None:
        self._engine, self._fuse = engine, fuse

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def commit(self, commits: Any) -> Any:
        return await self._fuse.around(lambda: self._engine.commit(commits))

    async def claim(self, request: Any) -> Any:
        return await self._fuse.around(lambda: self._engine.claim(request))


class FusedProvider:
    """A provider whose caller may be gone before or after any call."""

    def __init__(self, board: FakeChannelProvider, fuse: Fuse) -> None:
        self._board, self._fuse = board, fuse

    async def open(self, watched_id: str, **words: Any) -> Opened:
        return await self._fuse.around(lambda: self._board.open(watched_id, **words))

    async def stop(self, watched_id: str, **words: Any) -> None:
        await self._fuse.around(lambda: self._board.stop(watched_id, **words))


def fused(store: Store, fuse: Fuse) -> Store:
    return Store(cast(Engine, FusedEngine(store.engine, fuse)), clock=store.clock)


async def alices_watch(store: Store) -> Watch:
    found = await store.tenant("-").get(Watch, "calendar-sync-alice-hoge-jp")
    assert found is not None
    return found.doc


async def documents_of(store: Store, kind: type[ChannelFields] = Channel) -> list[ChannelFields]:
    return (await store.tenant("-").query(Query(kind).order_by("expiration"))).docs
