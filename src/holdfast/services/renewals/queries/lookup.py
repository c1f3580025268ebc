"""Load a document or raise NotFoundError, also for malformed ids; wait until a run has ended."""

from __future__ import annotations

from typing import Final, TypeVar

from holdfast.errors import BadIdError, NotFoundError
from holdfast.kit.runs import RunFields
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.model import Document
from holdfast.store import Snapshot, Store

D = TypeVar("D", bound=Document)
R = TypeVar("R", bound=RunFields)
LOOK_S: Final = 1.0


async def get_or_404(store: Store, cls: type[D], id: str, *, what: str) -> Snapshot[D]:
    """Return the document with this id or raise NotFoundError; malformed ids count as missing.

    Example: `resident = await get_or_404(store, Resident, "resident-1", what="resident")`
    """
    try:
        snapshot = await store.get(cls, id)
    except BadIdError:
        snapshot = None
    if snapshot is None:
        raise NotFoundError(f"no {what} {id!r}", what)
    return snapshot


async def wait_until_done(store: Store, cls: type[R], id: str, *, what: str, within_s: float) -> R:
    """The run once it has ended, or as it is after `within_s`.

    Example: `job = await wait_until_done(store, CalculationJob, "run-1", what="job", within_s=60)`
    """
    until = store.clock.monotonic() + within_s
    subscription = store.watch(cls)
    try:
        while True:
            run = (await get_or_404(store, cls, id, what=what)).doc
            left_s = until - store.clock.monotonic()
            if run.completed_at is not None or left_s <= 0:
                return run
            await wait_for_wake(store.clock, min(left_s, LOOK_S), wake=subscription)
    finally:
        subscription.close()
