"""Looking for what somebody named: there, or not there; an id that nothing can have is not there either."""

from __future__ import annotations

from typing import TypeVar

from holdfast.errors import BadIdError, NotFoundError
from holdfast.model import Document
from holdfast.store import Snapshot, Store

D = TypeVar("D", bound=Document)


async def found(store: Store, cls: type[D], id: str, *, what: str) -> Snapshot[D]:
    """The document with this id; `NotFoundError` says what is not there.

    Example: `resident = await found(store, Resident, "resident-1", what="resident")`
    """
    try:
        snapshot = await store.get(cls, id)
    except BadIdError:
        snapshot = None
    if snapshot is None:
        raise NotFoundError(f"no {what} {id!r}", what)
    return snapshot
