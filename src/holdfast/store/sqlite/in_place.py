"""Which requests may be made in the event loop's thread: small commits, and batches of one caller.

A batch of new documents stops the loop about as long again as they took to be prepared there. In the writer's
thread it takes longer, because nothing of it is in that processor's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from holdfast.store.commit import Commit, CreateBatch, Write

WRITES_MAX: Final = 8
BATCH_WRITES_MAX: Final = 200
BATCH_BYTES_MAX: Final = 262_144
BATCHED: Final = frozenset({"create", "upsert"})  # what is inserted by hundreds, without a read


def lone_writes(commits: Sequence[Commit]) -> Sequence[Write]:
    """Return the writes of one caller's commit or batch of creates; none of other requests."""
    if isinstance(commits, CreateBatch):
        return () if commits.shared else commits.writes
    return commits[0].writes if len(commits) == 1 else ()


def may_stop_loop(writes: Sequence[Write]) -> bool:
    """Whether these are few, or many of new documents that are not large."""
    if len(writes) <= WRITES_MAX:
        return len(writes) > 0
    if len(writes) > BATCH_WRITES_MAX or not {write.kind for write in writes} <= BATCHED:
        return False
    return sum([len(w.prepared.body) for w in writes if w.prepared is not None]) <= BATCH_BYTES_MAX
