"""The document in the target that names its source: who may copy to it, and who may use it."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import ConfigError, HoldfastError
from holdfast.model import Document, schema_of
from holdfast.store import Snapshot, Store
from holdfast.store_copy.models import COPY_ID, Copy
from holdfast.store_copy.walk import all_documents, collection_of


async def refuse_unfinished_copy(store: Store) -> None:
    """Refuse a store that is an unfinished copy: what is written to it now would be undone."""
    if schema_of(Copy) not in store.catalog:
        return
    marker = await store.get(Copy, COPY_ID)
    if marker is not None and marker.doc.state == "unfinished":
        raise ConfigError(
            f"this store is an unfinished copy of {marker.doc.source}: stop what writes there, run "
            "`holdfast copy` with --final, then start here"
        )


async def check_target(
    target: Store, classes: Sequence[type[Document]], *, source: str
) -> Snapshot[Copy] | None:
    """The marker of an unfinished copy of this source, None for an empty target; else refuse it."""
    # An unreachable target fails here, once, and not for each collection.
    await target.diff()
    marker = await _marker(target)
    if marker is None:
        await _refuse_nonempty(target, classes)
        return None
    if marker.doc.source != source:
        raise ConfigError(
            f"the target holds a copy of {marker.doc.source}, not of {source}: "
            "give an empty target, or that source"
        )
    if marker.doc.state == "finished":
        raise ConfigError(
            f"the target holds a copy of {source}, finished at {marker.doc.finished_at:%Y-%m-%d %H:%M}; it "
            "may have been written to since: check it with --verify, or copy to an empty target"
        )
    return marker


async def _marker(target: Store) -> Snapshot[Copy] | None:
    try:
        return await target.get(Copy, COPY_ID)
    except HoldfastError:
        # No such table yet.
        return None


async def _refuse_nonempty(target: Store, classes: Sequence[type[Document]]) -> None:
    for cls in classes:
        try:
            page = await target.privileged().query(all_documents(cls).limit(1))
        except HoldfastError:
            continue
        if page.items:
            raise ConfigError(
                f"the target is not empty: {collection_of(cls)} has documents that no copy wrote; "
                "give an empty one"
            )
