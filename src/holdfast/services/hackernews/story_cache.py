"""The cached list of each timespan, in memory and in one document, with the day's stories merged in.

    stories(Year) ──► Year ─┐ merged, too old ones dropped, remembered until either changes
                 └──► Day ──┘
    a load of Day ──► commits Day, and its stories into every longer list that is cached

So a story of the day that a longer list has shown stays in it when the day is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec
import structlog

from holdfast.kit.cache import Cache, Cached, Loaded
from holdfast.services.hackernews.domain.ranking import RankedStory, merge
from holdfast.services.hackernews.domain.spans import DAY, SPANS, Span
from holdfast.services.hackernews.models import CachedSpan
from holdfast.services.hackernews.span_query import best_stories
from holdfast.store import Store, Transaction
from holdfast.store.io_counters import IO_COUNTERS

NAME: Final = "hackernews_stories"
# For so long after its time to live a list is served while it is computed again.
STALE_S: Final = 600.0
# A change by another process is seen within this time.
MEMORY_S: Final = 60.0
LEASE_S: Final = 60.0

log = structlog.get_logger("holdfast.hackernews")


class SpanStories(msgspec.Struct, frozen=True):
    """The stories of a span in their order, the time of the query behind them, and the cache level.

    The same `stories` object is returned as long as nothing changed.
    """

    stories: Sequence[RankedStory]
    cached_at: datetime
    level: str
    stale: bool


class _Merged(msgspec.Struct, frozen=True):
    own: Sequence[RankedStory]
    day: Sequence[RankedStory]
    stories: Sequence[RankedStory]
    oldest_ms: int

    def serves(self, own: Sequence[RankedStory], day: Sequence[RankedStory], *, cutoff_ms: int) -> bool:
        return self.own is own and self.day is day and self.oldest_ms > cutoff_ms


class StoryCache:
    """Lists of the best stories, computed once for all processes.

    Example: `page = (await StoryCache(store).stories(SPANS["Week"])).stories[:30]`
    """

    def __init__(self, store: Store, *, memory_s: float = MEMORY_S, stale_s: float = STALE_S) -> None:
        self._store, self._clock = store, store.clock
        self.cache: Cache[list[RankedStory]] = Cache(
            store, NAME, self._load, ttl_s=lambda key: SPANS[key].ttl_s, stale_s=stale_s, memory_s=memory_s,
            lease_s=LEASE_S, model=CachedSpan,
        )  # fmt: skip
        self._merged: dict[str, _Merged] = {}

    async def stories(self, span: Span) -> SpanStories:
        """Return the span's stories with the day's among them, none older than the span."""
        if span is DAY:
            own = day = await self.cache.get(DAY.name)
        else:
            own, day = await asyncio.gather(self.cache.get(span.name), self.cache.get(DAY.name))
        return SpanStories(self._merge(span, own, day), own.cached_at, own.level, own.stale or day.stale)

    def _merge(
        self, span: Span, own: Cached[list[RankedStory]], day: Cached[list[RankedStory]]
    ) -> Sequence[RankedStory]:
        cutoff_ms, known = span.cutoff_ms(self._now_ms()), self._merged.get(span.name)
        if known is not None and known.serves(own.value, day.value, cutoff_ms=cutoff_ms):
            return known.stories
        stories = merge(own.value, () if span is DAY else day.value, cutoff_ms=cutoff_ms)
        oldest_ms = min((story.time for story in stories), default=cutoff_ms + 1)
        self._merged[span.name] = _Merged(own.value, day.value, stories, oldest_ms)
        return stories

    async def apply(self, changed: Collection[RankedStory], *, removed: Collection[int] = ()) -> None:
        """Put fetched stories into every cached list that they belong to, and take removed ones out."""
        if changed or removed:
            for span in SPANS.values():
                await self.cache.update(span.name, partial(self._changed, span, changed, removed=removed))

    async def clear(self, transaction: Transaction | None = None) -> None:
        """Clear all lists on both levels; a computation that began before can't bring one back.

        In the caller's transaction, if given, which is followed by `forget`.
        """
        await self.cache.clear(*SPANS, transaction=transaction)

    def forget(self) -> None:
        """Drop what this process has in memory."""
        self.cache.forget()

    def _changed(
        self,
        span: Span,
        changed: Collection[RankedStory],
        kept: list[RankedStory],
        *,
        removed: Collection[int] = (),
    ) -> list[RankedStory]:
        return merge(kept, changed, cutoff_ms=span.cutoff_ms(self._now_ms()), removed=removed)

    async def _load(self, key: str) -> Loaded[list[RankedStory]]:
        began_s, reads = time.perf_counter(), IO_COUNTERS.reads
        stories = await best_stories(self._store, SPANS[key], now_ms=self._now_ms())
        log.info(
            "stories computed", timespan=key, stories=len(stories), reads=IO_COUNTERS.reads - reads,
            ms=round((time.perf_counter() - began_s) * 1_000, 1), cache="source",
        )  # fmt: skip
        longer = [span for span in SPANS.values() if span is not DAY] if key == DAY.name else []
        return Loaded(stories, updates={span.name: partial(self._changed, span, stories) for span in longer})

    def _now_ms(self) -> int:
        return self._clock.now_us() // 1_000
