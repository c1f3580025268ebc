"""One round of the worker: lists, missing stories, then the tiers of stale ones, in batches."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

import structlog
from msgspec.structs import replace

from holdfast.errors import HoldfastError
from holdfast.kit.leases import Lease
from holdfast.services.hackernews.domain.ranking import RankedStory
from holdfast.services.hackernews.domain.spans import DAY, TIERS
from holdfast.services.hackernews.metrics import HackerNewsMetrics
from holdfast.services.hackernews.models import GapRange, StoryRound
from holdfast.services.hackernews.sources import HackerNewsSources
from holdfast.services.hackernews.story_cache import StoryCache
from holdfast.services.hackernews.story_store import (
    FetchedBatch,
    latest_story_id,
    read_batch,
    stale_stories,
    stored_stories,
)
from holdfast.store import Store, put
from holdfast.store.io_counters import IO_COUNTERS

BATCH: Final = 100
KNOWN_MAX: Final = 50_000
RETRY_MAX: Final = 1_000
ATTEMPTS_MAX: Final = 48  # rounds, that is a day
ERROR_CHARS_MAX: Final = 500

log = structlog.get_logger("holdfast.hackernews")


class FetchedIds:
    """Ids that need no look into the store: stored already, or of no interest. Bounded, oldest first out."""

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}

    def add(self, *ids: int) -> None:
        self._ids.update(dict.fromkeys(ids))
        while len(self._ids) > KNOWN_MAX:
            del self._ids[next(iter(self._ids))]

    def discard(self, *ids: int) -> None:
        for one in ids:
            self._ids.pop(one, None)

    def missing(self, ids: Sequence[int]) -> list[int]:
        return [one for one in ids if one not in self._ids]


class RoundExecution:
    """Runs one round under a lease and writes its progress into its document."""

    def __init__(
        self,
        store: Store,
        sources: HackerNewsSources,
        *,
        cache: StoryCache,
        metrics: HackerNewsMetrics,
        known: FetchedIds,
        lease: Lease,
        previous: StoryRound | None,
    ) -> None:
        self._store, self._clock, self._sources, self._lease = store, store.clock, sources, lease
        self._cache, self._metrics, self._known = cache, metrics, known
        self._retry = dict(previous.retry) if previous is not None else {}
        self._doc = StoryRound(started_at=self._clock.now())
        self._tried: set[int] = set()
        self._changed: dict[int, RankedStory] = {}
        self._gone: set[int] = set()

    async def run(self) -> StoryRound:
        """Run to the end; what was stored before an error stays, and the round's document has the error."""
        began_s, reads, writes = time.perf_counter(), IO_COUNTERS.reads, IO_COUNTERS.writes
        fault: HoldfastError | None = None
        try:
            await self._fetch_new()
            await self._refresh_stale()
        except HoldfastError as raised:
            fault = raised
        await self._finish(fault, began_s=began_s, reads=reads, writes=writes)
        if fault is not None:
            raise fault
        return self._doc

    async def _fetch_new(self) -> None:
        latest_id = await latest_story_id(self._store)
        listed = await self._sources.listed()
        if listed.errors and not listed.ids:
            raise listed.errors[0]
        ids = self._known.missing([*listed.ids, *map(int, self._retry)])
        stored = await stored_stories(self._store, ids)
        self._known.add(*stored)
        self._doc = replace(self._doc, gap=_gap(latest_id, listed.newest))
        self._doc.new = await self._fetch("new", [one for one in dict.fromkeys(ids) if one not in stored])

    async def _refresh_stale(self) -> None:
        for tier in TIERS:
            due = await stale_stories(self._store, tier, now=self._clock.now())
            count = await self._fetch(tier.span.name, [one for one in due if one not in self._tried])
            self._doc.refreshed[tier.span.name] = count

    async def _fetch(self, phase: str, ids: Sequence[int]) -> int:
        """Fetch and store items in batches; return how many stories were stored."""
        self._doc.phase, self._doc.total = phase, self._doc.total + len(ids)
        kept = 0
        for start in range(0, len(ids), BATCH):
            part = ids[start : start + BATCH]
            batch = read_batch(await self._sources.items(part), now=self._clock.now())
            self._tried.update(part)
            self._count(batch, "new" if phase == "new" else "refreshed")
            self._doc.done += len(part)
            await self._store.commit(self._lease.guard(), put(self._doc), *batch.writes())
            kept += len(batch.stories)
            self._show_progress()
        return kept

    def _count(self, batch: FetchedBatch, outcome: str) -> None:
        doc = self._doc
        doc.gone, doc.other = doc.gone + len(batch.gone), doc.other + len(batch.other)
        doc.failed += len(batch.failed)
        for story in batch.ranked:
            self._changed[story.id] = story
            self._retry.pop(str(story.id), None)
        for one in (*batch.gone, *batch.other):
            self._retry.pop(str(one), None)
        for one in batch.failed if outcome == "new" else ():
            self._retry[str(one)] = self._retry.get(str(one), 0) + 1
        doc.retry = {
            one: count for one, count in list(self._retry.items())[-RETRY_MAX:] if count < ATTEMPTS_MAX
        }
        self._gone.update(batch.gone)
        self._known.add(*(story.id for story in batch.stories), *batch.other)
        self._known.discard(*batch.gone)
        counts: dict[str, Sequence[Any]] = {
            outcome: batch.stories, "gone": batch.gone, "other": batch.other, "failed": batch.failed,
        }  # fmt: skip
        for name, found in counts.items():
            self._metrics.items.labels(name).inc(len(found))

    def _show_progress(self) -> None:
        self._metrics.progress.labels("total").set(self._doc.total)
        self._metrics.progress.labels("done").set(self._doc.done)

    async def _finish(self, fault: HoldfastError | None, *, began_s: float, reads: int, writes: int) -> None:
        """Bring what was stored into the cached lists, and close the round's document."""
        await self._cache.apply(self._changed.values(), removed=self._gone)
        # A look at the day keeps it fresh, and its stories in the longer lists, also while nobody reads.
        level = (await self._cache.stories(DAY)).level
        doc, now = self._doc, self._clock.now()
        doc.status, doc.finished_at = "done" if fault is None else "failed", now
        doc.error = "" if fault is None else fault.message[:ERROR_CHARS_MAX]
        doc.reads, doc.writes = IO_COUNTERS.reads - reads, IO_COUNTERS.writes - writes
        doc.ms = round((time.perf_counter() - began_s) * 1_000)
        await self._store.commit(self._lease.guard(), put(doc))
        self._metrics.rounds.labels(doc.status).inc()
        self._metrics.finished.set(now.timestamp())
        log.info(
            "story round", status=doc.status, new=doc.new, refreshed=dict(doc.refreshed), gone=doc.gone,
            other=doc.other, failed=doc.failed, reads=doc.reads, writes=doc.writes, ms=doc.ms, cache=level,
            error=doc.error,
        )  # fmt: skip


def _gap(latest_id: int | None, newest: Sequence[int]) -> GapRange | None:
    """The ids between what was stored and what is listed; None where the lists reach back far enough."""
    if latest_id is None or not newest or min(newest) <= latest_id:
        return None
    return GapRange(latest_id + 1, min(newest) - 1)
