"""Bodies too large for a document: stored as chunks beside their item, which is what makes them a message.

    small    item with the body                                                       one commit
    medium   item + chunks                                                            one commit
    large    upload ──► chunk … chunk ──► item, and the upload deleted                the last commit counts

Until the last commit there is no message, only an upload that retention deletes with its chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
from io import BytesIO
from typing import Final

from holdfast.errors import HoldfastError, NotFoundError
from holdfast.ids import ulid
from holdfast.kit.inbox.models import InboxChunk, InboxItem, InboxUpload, chunk_ids
from holdfast.store import PRESENT, Store, Write, create, delete

# Items are listed and claimed many at a time, so they stay small.
INLINE_BYTES_MAX: Final = 128_000
CHUNK_BYTES: Final = 700_000
# A commit well below the smallest limit of an engine, Firestore's 10 MiB.
CHUNKS_PER_COMMIT: Final = 4
CHUNKS_AT_ONCE: Final = 2


async def store_body(store: Store, item: InboxItem, body: bytes) -> list[Write]:
    """Store a body that is too large for its item; return what belongs into the item's commit."""
    item.body_bytes, item.upload_id = len(body), ulid()
    item.chunks = -(-len(body) // CHUNK_BYTES)
    numbers = range(item.chunks)
    if item.chunks <= CHUNKS_PER_COMMIT:
        return [_chunk(item, body, number) for number in numbers]
    await store.commit(
        create(InboxUpload(
            id=item.upload_id, tenant_id=item.tenant_id, chunks=item.chunks, started_at=item.received_at
        ))
    )  # fmt: skip
    for first in numbers[::CHUNKS_AT_ONCE]:
        some = numbers[first : first + CHUNKS_AT_ONCE]
        await asyncio.gather(*(store.commit(_chunk(item, body, number)) for number in some))
    return [delete(InboxUpload, item.upload_id, expect=PRESENT)]


def _chunk(item: InboxItem, body: bytes, number: int) -> Write:
    data = body[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]
    id = chunk_ids(item.upload_id, item.chunks)[number]
    return create(InboxChunk(id=id, tenant_id=item.tenant_id, data=data))


async def discard_body(store: Store, item: InboxItem) -> None:
    """Delete the chunks of a message that turned out to be a duplicate; what fails is left to retention."""
    if item.chunks > CHUNKS_PER_COMMIT:
        ids = chunk_ids(item.upload_id, item.chunks)
        with contextlib.suppress(HoldfastError):
            await store.commit(delete(InboxUpload, item.upload_id), *(delete(InboxChunk, id) for id in ids))


async def load_body(store: Store, item: InboxItem) -> bytes:
    """Return the whole body, read chunk by chunk."""
    if not item.chunks:
        return item.body
    # Filled in place: joined parts would take the memory twice.
    whole = BytesIO(bytes(item.body_bytes))
    for id in chunk_ids(item.upload_id, item.chunks):
        found = await store.get(InboxChunk, id)
        if found is None:
            raise NotFoundError(f"a part of the body is missing ({id}); let the provider send it again")
        whole.write(found.doc.data)
    return whole.getvalue()
