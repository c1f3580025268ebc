"""Back-fill: fetches the stories of a range of ids that are not stored; continues after a kill.

Each batch is one commit: its stories, and the checkpoint that says where to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError, InvalidError, RetryLaterError
from holdfast.kit import NO_TENANT
from holdfast.kit.checkpoints import CheckpointFields, Checkpoints
from holdfast.kit.leases import Lease, Leases
from holdfast.kit.worker_loop import worker_id
from holdfast.services.hackernews.models import STORY_ID_MAX
from holdfast.services.hackernews.sources import HackerNewsSources
from holdfast.services.hackernews.story_cache import StoryCache
from holdfast.services.hackernews.story_store import FetchedBatch, read_batch, stored_stories
from holdfast.store import Store

LEASE: Final = "hackernews-backfill"
LEASE_S: Final = 6.0
# Long enough for the lease of a killed process to run out: typing the command again goes on.
WAIT_S: Final = 2 * LEASE_S
BATCH: Final = 200
FAILED_MAX: Final = 10_000
STEP: Final = "items"


class BackfillProgress(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far a back-fill is: `next_id` is the first that it has not looked at.

    `stored` were added, `present` were there already, `other` are no stories; `failed` are tried again when
    the same range is run once more.
    """

    first_id: int
    last_id: int
    next_id: int
    stored: int = 0
    present: int = 0
    other: int = 0
    failed: tuple[int, ...] = ()
    resumed: bool = False

    @property
    def done(self) -> int:
        return self.next_id - self.first_id

    @property
    def total(self) -> int:
        return self.last_id - self.first_id + 1

    @property
    def finished(self) -> bool:
        """Whether nothing is left to try: the same range, run once more, starts over."""
        return self.next_id > self.last_id and not self.failed


Report = Callable[[BackfillProgress], None]


class StoryBackfill:
    """Fetches ranges of ids, one range at a time across processes.

    Example: `progress = await backfill.run(8_000_000, 8_001_000, report=print)`
    """

    def __init__(self, store: Store, sources: HackerNewsSources, *, cache: StoryCache) -> None:
        self._store, self._clock, self._owner = store.tenant(NO_TENANT), store.clock, worker_id()
        self._leases, self._checkpoints = Leases(store), Checkpoints(store)
        self._sources, self._cache = sources, cache

    async def run(self, first_id: int, last_id: int, *, report: Report | None = None) -> BackfillProgress:
        """Fetch what is missing of the range; RetryLaterError while another back-fill runs, or HN is down."""
        if not 1 <= first_id <= last_id <= STORY_ID_MAX:
            raise InvalidError(f"a range is from 1 to {STORY_ID_MAX}, the smaller id first", "from")
        self._sources.require_enabled()
        async with self._leases.hold(
            LEASE, ttl_s=LEASE_S, owner=self._owner, purpose="back-fill", wait_s=WAIT_S
        ) as lease:
            return await self._run(lease, first_id, last_id=last_id, report=report or (lambda _: None))

    async def _run(self, lease: Lease, first_id: int, *, last_id: int, report: Report) -> BackfillProgress:
        run_id = f"hackernews-backfill-{first_id}-{last_id}"
        latest = await self._checkpoints.latest(run_id)
        progress = BackfillProgress(first_id=first_id, last_id=last_id, next_id=first_id)
        if latest is not None and not (stored := msgspec.convert(latest.state, BackfillProgress)).finished:
            progress = msgspec.structs.replace(stored, resumed=True)
        report(progress)
        again, progress = progress.failed, msgspec.structs.replace(progress, failed=())
        while again or progress.next_id <= last_id:
            part = again[:BATCH] or range(progress.next_id, min(last_id, progress.next_id + BATCH - 1) + 1)
            again = again[BATCH:]
            next_id = max(progress.next_id, part[-1] + 1)
            progress, batch = await self._fetch(progress, part)
            progress = msgspec.structs.replace(progress, next_id=next_id)
            latest = await self._commit(lease, run_id, progress, batch=batch, waiting=again, after=latest)
            await self._cache.apply(batch.ranked)
            report(progress)
        if latest is not None and progress.finished:
            await self._store.commit(lease.guard(), *self._checkpoints.writes_retire(latest))
        return progress

    async def _fetch(
        self, progress: BackfillProgress, ids: Sequence[int]
    ) -> tuple[BackfillProgress, FetchedBatch]:
        present = await stored_stories(self._store, ids)
        items = await self._sources.items([one for one in ids if one not in present])
        faults = [item for _, item in items if isinstance(item, HoldfastError)]
        if items and len(faults) == len(items):
            raise RetryLaterError(
                f"Hacker News can't be reached ({faults[0].message}); run the same command again to go on"
            )
        batch = read_batch(items, now=self._clock.now())
        # An id that the API has nothing for will have nothing later: ids below the newest are final.
        failed = [one for one, item in items if isinstance(item, HoldfastError)]
        added = {
            "stored": progress.stored + len(batch.stories), "present": progress.present + len(present),
            "other": progress.other + len(items) - len(batch.stories) - len(failed),
            "failed": (*progress.failed, *failed)[:FAILED_MAX],
        }  # fmt: skip
        return msgspec.structs.replace(progress, **added), batch

    async def _commit(
        self,
        lease: Lease,
        run_id: str,
        progress: BackfillProgress,
        *,
        batch: FetchedBatch,
        waiting: Sequence[int],
        after: CheckpointFields | None,
    ) -> CheckpointFields:
        """Store a batch with its checkpoint; `waiting` are earlier failures, not yet tried again."""
        kept = msgspec.structs.replace(progress, failed=(*waiting, *progress.failed))
        state: dict[str, Any] = msgspec.to_builtins(kept)
        new = self._checkpoints.next(run_id, step_id=STEP, state=state, after=after)
        writes = self._checkpoints.writes_checkpoint(new, after=after)
        await self._store.commit(lease.guard(), *batch.writes(), *writes)
        return new
