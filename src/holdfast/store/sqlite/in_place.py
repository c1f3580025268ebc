"""Which requests may be made in the event loop's thread, and for how long they may stop it.

Small commits, and batches of one caller: a batch of new documents stops the loop about as long again as they
took to be prepared there. In the writer's thread it takes longer, because nothing of it is in that
processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.model.schema import Prepared
from holdfast.store.commit import Commit
from holdfast.store.commit_batch import CreateBatch

WRITES_MAX: Final = 8
BATCH_WRITES_MAX: Final = 200
BATCH_BYTES_MAX: Final = 262_144
BATCHED: Final = frozenset({"create", "upsert"})  # what is inserted by hundreds, without a read
# What a request takes past the limit uses up so many times as long of the time in which requests may be made
# in the loop's thread: a slow disk stops the loop for longer than that in one percent of the time at most.
# Time is saved up to the credit, so that a disk which is slow now and then does not send hundreds of commits
# to the writer thread each time. A batch may take so much longer for each write.
SECONDS_MAX: Final = 0.001
SECONDS_PER_WRITE_MAX: Final = 0.000_015
PAUSE: Final = 100
CREDIT_S: Final = 2.0


def writes_in_place(commits: Sequence[Commit]) -> int:
    """Return the number of writes where they may be made in the loop's thread, otherwise 0.

    They are one caller's: a few of any kind, or a batch of new documents that are not large.
    """
    if type(commits) is CreateBatch:
        return 0 if commits.shared else _fitting(commits.documents)
    if len(commits) != 1:
        return 0
    writes = commits[0].writes
    if len(writes) <= WRITES_MAX:
        return len(writes)
    if not {write.kind for write in writes} <= BATCHED:
        return 0
    return _fitting([write.prepared for write in writes if write.prepared is not None])


def callers(commits: Sequence[Commit]) -> int:
    """Return how many callers there may be whose commits these are."""
    return 1 if type(commits) is CreateBatch and not commits.shared else len(commits)


def _fitting(documents: Sequence[Prepared]) -> int:
    """Return how many documents these are, 0 where they are too many or too large."""
    count = len(documents)
    fits = count <= BATCH_WRITES_MAX and sum([len(one.body) for one in documents]) <= BATCH_BYTES_MAX
    return count if fits else 0


class InPlaceBudget:
    """The time for which commits may stop the event loop."""

    __slots__ = ("_from_s",)

    def __init__(self) -> None:
        self._from_s = 0.0  # since when time is saved; in the future where too much was used

    def allows(self, now_s: float) -> bool:
        return now_s >= self._from_s

    def charge(self, started_s: float, took_s: float, *, batch_writes: int) -> None:
        """Count a request that was made in the loop's thread; `batch_writes` is 0 for a small one."""
        excess_s = took_s - SECONDS_MAX - SECONDS_PER_WRITE_MAX * batch_writes
        if excess_s > 0:
            self._from_s = max(self._from_s, started_s - CREDIT_S) + excess_s * PAUSE
