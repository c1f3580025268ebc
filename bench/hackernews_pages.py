"""Pages of stories: with a million stored, for a reader who hid 117,000, and as fast as they are served.

Page times are inside the process, from the question to the bytes of the answer.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from bench.bulk_load import load
from bench.http_load import Client, clients, per_second, server
from bench.measure import SLOW_TURNS, Goal, Place, Ways, Workload
from bench.story_server import PATH
from holdfast.app import open_store
from holdfast.config import load_config
from holdfast.runtime import Runtime
from holdfast.runtime.document_registry import documents_of
from holdfast.services.hackernews import service
from holdfast.services.hackernews.domain.selection import StoriesQuery
from holdfast.services.hackernews.domain.spans import SPANS
from holdfast.services.hackernews.models import HiddenStory, Reader, ReaderState, Story
from holdfast.services.hackernews.operations import HackerNews
from holdfast.store import Store, Write, put

READER, STRANGER = "power-user", "newcomer"
ASKED: Final = 40
SPAN: Final = "Year"
COLD_MS_MAX: Final = 100.0
P99_MS_MAX: Final = 10.0
CONNECTIONS: Final = 32
_filled: dict[tuple[Place, str, int], str] = {}
_hidden: set[str] = set()


async def filled(place: Place, engine: str, stories: int) -> str:
    """A store with so many stories of the last three years; made once for all workloads of a run."""
    if (place, engine, stories) not in _filled:
        url = place.url(engine)
        store = await open_store(url, documents_of([service]))
        await store.migrate()
        await store.commit(put(Reader(name=READER)))
        await store.close()
        await load(url, Story, _stories(stories, now=store.clock.now()))
        _filled[place, engine, stories] = url
    return _filled[place, engine, stories]


def _stories(count: int, *, now: datetime) -> Iterator[Story]:
    dice, step_s = random.Random(1), 3 * 365 * 86_400 / count
    for number in range(count):
        at = now - timedelta(seconds=(count - number) * step_s)
        score = min(5_000, int(dice.paretovariate(0.9)))
        yield Story(
            by=f"author{number % 997}", id=number + 1, score=score, time=at, updated=at, descendants=score,
            title=f"Story {number} about something or other", url=f"https://example.com/{number}",
        )  # fmt: skip


async def _commit(store: Store, writes: Iterator[Write]) -> None:
    while batch := [write for _, write in zip(range(4_000), writes, strict=False)]:
        await asyncio.gather(*(store.commit(*batch[n : n + 400]) for n in range(0, len(batch), 400)))


@asynccontextmanager
async def opened(place: Place, url: str) -> AsyncIterator[HackerNews]:
    config = load_config({"home": place.folder(), "store": url}, environ={})
    runtime = await Runtime.open(config, services=[service])
    try:
        yield runtime.parts["hackernews"].operations
    finally:
        await runtime.close()


async def hide(url: str, operations: HackerNews, count: int) -> None:
    """Hide three of four of the best stories, and others up to the count; once for all workloads."""
    if url in _hidden:
        return
    _hidden.add(url)
    best = (await operations.cache.stories(SPANS[SPAN])).stories
    ids = [story.id for n, story in enumerate(best) if n % 4]
    ids += range(20_000_000, 20_000_000 + count - len(ids))
    await operations.store.commit(put(ReaderState(name=READER, last_added_at=count + 1)))
    writes = (put(HiddenStory(name=READER, story_id=str(one), added_at=n)) for n, one in enumerate(ids, 1))
    await _commit(operations.store, writes)


async def page_ms(operations: HackerNews, reader: str, *, cold: bool = False) -> float:
    """The median time of a full page of the year."""
    took = []
    for _ in range(ASKED):
        if cold:
            operations.hides.forget()
        start = time.perf_counter()
        page = await operations.stories(StoriesQuery(timespan=SPAN), reader=reader)
        body = page.json.body
        took.append((time.perf_counter() - start) * 1_000)
        assert (len(page.stories), len(body) > 10_000) == (500, True)
    return statistics.median(took)


@asynccontextmanager
async def hidden_or_not(place: Place, engine: str) -> AsyncIterator[Ways]:
    url = await filled(place, engine, place.scale(1_000_000, 20_000))
    async with opened(place, url) as operations:
        await hide(url, operations, place.scale(117_000, 5_000))
        yield Ways(ours=lambda: page_ms(operations, READER), other=lambda: page_ms(operations, STRANGER))


@asynccontextmanager
async def first_page(place: Place, engine: str) -> AsyncIterator[Ways]:
    """The page of a process that knows nothing of the reader yet."""
    url = await filled(place, engine, place.scale(1_000_000, 20_000))
    async with opened(place, url) as operations:
        await hide(url, operations, place.scale(117_000, 5_000))

        async def limit() -> float:
            return COLD_MS_MAX

        yield Ways(ours=lambda: page_ms(operations, READER, cold=True), other=limit)


@asynccontextmanager
async def sizes(place: Place, engine: str) -> AsyncIterator[Ways]:
    large = await filled(place, engine, place.scale(1_000_000, 20_000))
    small = await filled(place, engine, 10_000)
    async with opened(place, large) as ours, opened(place, small) as other:
        hidden = place.scale(117_000, 5_000)
        await hide(large, ours, hidden)
        await hide(small, other, hidden)
        yield Ways(ours=lambda: page_ms(ours, READER), other=lambda: page_ms(other, READER))


@asynccontextmanager
async def cold_year(place: Place, engine: str) -> AsyncIterator[Ways]:
    """A year's list computed from the stored stories, with nothing cached on either level."""
    url = await filled(place, engine, place.scale(600_000, 20_000))
    async with opened(place, url) as operations:

        async def ours() -> float:
            await operations.stories(StoriesQuery(timespan="Day"))
            await operations.cache.cache.clear(SPAN)
            start = time.perf_counter()
            page = await operations.stories(StoriesQuery(timespan=SPAN))
            assert len(page.json.body) > 10_000
            return (time.perf_counter() - start) * 1_000

        async def limit() -> float:
            return COLD_MS_MAX

        yield Ways(ours=ours, other=limit)


@asynccontextmanager
async def warm_p99(place: Place, engine: str) -> AsyncIterator[Ways]:
    url = await filled(place, engine, 10_000)
    async with opened(place, url) as operations:

        async def ours() -> float:
            took = []
            for _ in range(2_000):
                start = time.perf_counter()
                page = await operations.stories(StoriesQuery(timespan=SPAN))
                assert page.json.body
                took.append((time.perf_counter() - start) * 1_000)
            return statistics.quantiles(took, n=100)[-1]

        async def limit() -> float:
            return P99_MS_MAX

        yield Ways(ours=ours, other=limit)


# -- served ----------------------------------------------------------------------------------------


class _Client(Client):
    _left, _head = 0, b""

    def request(self) -> bytes:
        return f"GET {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n".encode()

    def data_received(self, data: bytes) -> None:
        if not self._left:
            self._head += data
            head, found, body = self._head.partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 200"), head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            self._left, self._head = int(length.split(b":")[1]), b""
            assert self._left > 10_000
            data = body
        self._left -= len(data)
        if not self._left and self._done is not None:
            self._done.set_result(None)


_server = partial(server, "bench.story_server")
_clients = partial(clients, _Client, count=CONNECTIONS)


@asynccontextmanager
async def served(place: Place, engine: str) -> AsyncIterator[Ways]:
    url, count = await filled(place, engine, 10_000), place.scale(6_000, 1_500)
    with _server("ours", url) as mine, _server("bare", url) as theirs:
        async with _clients(mine) as ours, _clients(theirs) as other:
            yield Ways(ours=lambda: per_second(ours, count), other=lambda: per_second(other, count))


_ENGINES = ("sqlite full", "postgres")
WORKLOADS = [
    Workload(
        name="page, 117,000 hidden of 1,000,000", engines=_ENGINES, unit="ms", goal=Goal(2.0, at_most=True),
        other_name="none hidden", open=hidden_or_not, quick_name="page, 5,000 hidden of 20,000",
        turns=SLOW_TURNS,
    ),
    Workload(
        name="a process's first page, 117,000 hidden", engines=_ENGINES, unit="ms",
        goal=Goal(1.0, at_most=True), other_name="limit", open=first_page,
        quick_name="a process's first page, 5,000 hidden", turns=SLOW_TURNS,
    ),
    Workload(
        name="page, 1,000,000 stories", engines=_ENGINES, unit="ms", goal=Goal(1.5, at_most=True),
        other_name="10,000 stories", open=sizes, quick_name="page, 20,000 stories", turns=SLOW_TURNS,
    ),
    Workload(
        name="a year computed, 200,000 stories in it", engines=_ENGINES, unit="ms",
        goal=Goal(1.0, at_most=True), other_name="limit", open=cold_year,
        quick_name="a year computed, 7,000 stories in it", turns=SLOW_TURNS,
    ),
    Workload(
        name="page from memory, p99", engines=("sqlite full",), unit="ms", goal=Goal(1.0, at_most=True),
        other_name="limit", open=warm_p99, turns=SLOW_TURNS,
    ),
    Workload(
        name="warm page over HTTP, 32 connections", engines=("sqlite full",), unit="pages/s", goal=Goal(0.6),
        other_name="bare Litestar, same bytes", open=served,
    ),
]  # fmt: skip
