"""The document in the target that says whose copy it is: who may copy to it, and who may use it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ConfigError, HoldfastError
from holdfast.model import Document, schema_of
from holdfast.store import Snapshot, Store
from holdfast.store_copy.models import COPY_ID, Copy
from holdfast.store_copy.walk import all_documents, collection_of


async def refuse_unfinished_copy(store: Store) -> None:
    """Refuse a store that is being made by a copy: what is written to it now would be undone."""
    if schema_of(Copy) not in store.catalog:
        return
    found = await store.get(Copy, COPY_ID)
    if found is not None and found.doc.state == "unfinished":
        raise ConfigError(
            f"this store is an unfinished copy of {found.doc.source}: stop what writes there, run "
            "`holdfast copy` with --final, then start here"
        )


async def check_target(
    target: Store, classes: Sequence[type[Document]], *, source: str
) -> Snapshot[Copy] | None:
    """The unfinished copy of this source that the target holds, None where it is empty; else refuse it."""
    # Whoever can't be reached says so here, once, and not for each collection.
    await target.diff()
    found = await _marker(target)
    if found is None:
        await _refuse_filled(target, classes)
        return None
    if found.doc.source != source:
        raise ConfigError(
            f"the target holds a copy of {found.doc.source}, not of {source}: "
            "give an empty target, or that source"
        )
    if found.doc.state == "finished":
        raise ConfigError(
            f"the target holds a copy of {source}, finished at {found.doc.finished_at:%Y-%m-%d %H:%M}; it "
            "may have been written to since: check it with --verify, or copy to an empty target"
        )
    return found


async def _marker(target: Store) -> Snapshot[Copy] | None:
    try:
        return await target.get(Copy, COPY_ID)
    except HoldfastError:
        # No such table yet.
        return None


async def _refuse_filled(target: Store, classes: Sequence[type[Document]]) -> None:
    for cls in classes:
        try:
            page = await target.privileged().query(all_documents(cls).limit(1))
        except HoldfastError:
            continue
        if page.items:
            raise ConfigError(
                f"the target is not empty: {collection_of(cls)} has documents that no copy put there; "
                "give an empty one"
            )
