"""The worker: fetches stories that are not stored, refreshes stale ones, and updates the cached lists.

One round at a time in all processes. Each batch of items is one commit with the round's progress in it, under
the round's lease: a process that dies loses at most the batch it had in hand, and what it did not reach is
fetched by the next round, because it is still missing or still stale.
"""

from __future__ import annotations

from typing import Final

from holdfast.kit import NO_TENANT
from holdfast.kit.leases import Leases
from holdfast.kit.worker_loop import worker_id
from holdfast.services.hackernews.metrics import HackerNewsMetrics
from holdfast.services.hackernews.models import StoryRound
from holdfast.services.hackernews.round_execution import FetchedIds, RoundExecution
from holdfast.services.hackernews.sources import HackerNewsSources
from holdfast.services.hackernews.story_cache import StoryCache
from holdfast.store import Query, Store, patch

LEASE: Final = "hackernews-worker"
LEASE_S: Final = 60.0


class StoryWorker:
    """Runs rounds, one at a time across processes.

    Example: `result = await StoryWorker(store, sources, cache=cache, metrics=metrics).run()`
    """

    def __init__(
        self, store: Store, sources: HackerNewsSources, *, cache: StoryCache, metrics: HackerNewsMetrics
    ) -> None:
        self._store, self._owner = store.tenant(NO_TENANT), worker_id()
        self._leases = Leases(store)
        self._sources, self._cache, self._metrics = sources, cache, metrics
        self._known = FetchedIds()

    async def run(self) -> StoryRound:
        """Run one round; RetryLaterError while another process runs one."""
        self._sources.require_enabled()
        async with self._leases.hold(LEASE, ttl_s=LEASE_S, owner=self._owner, purpose="story round") as lease:
            previous = await self.rounds(limit=1)
            if previous and previous[0].status == "running":
                died = {"status": "failed", "error": "the process died, or lost its lease"}
                await self._store.commit(lease.guard(), patch(StoryRound, previous[0].id, changes=died))
            execution = RoundExecution(
                self._store, self._sources, cache=self._cache, metrics=self._metrics, known=self._known,
                lease=lease, previous=previous[0] if previous else None,
            )  # fmt: skip
            return await execution.run()

    async def rounds(self, *, limit: int = 20) -> list[StoryRound]:
        """Return the latest rounds, newest first; the first may be under way."""
        return (await self._store.query(Query(StoryRound).order_by("-started_at").limit(limit))).docs
