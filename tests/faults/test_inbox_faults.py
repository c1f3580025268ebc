"""A process killed while it takes a large message in: no half message, the next delivery is kept whole."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from holdfast.kit.inbox import Inbox, InboxChunk, InboxItem, InboxUpload, Source, Verified
from holdfast.kit.inbox.models import UPLOAD_S_MAX, chunk_ids
from holdfast.kit.retention import Sweeper
from holdfast.store import Query
from holdfast.testing import ManualClock
from tests.faults.controlled_process import run_processes
from tests.faults.inbox_worker import ALL, BODY, opened

WORKER = "tests.faults.inbox_worker"

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)


class Anyone:
    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified("m")


SOURCE = Source(name="s", verifier=Anyone(), body_bytes_max=len(BODY))


async def test_what_a_killed_process_had_stored_of_a_message_is_no_message_and_is_pruned(url: str) -> None:
    async with opened(url) as store:
        await store.migrate()
        async with run_processes(WORKER, "upload", {"url": url}) as (uploader,):
            assert await uploader.hear() == "stored"
            await uploader.kill()
        inbox = Inbox(store)
        assert (await inbox.page("pending"))[0] == []
        assert not (await inbox.receive(SOURCE, {}, BODY)).duplicate
        ((item,), _) = await inbox.page("pending")
        assert await store.privileged().count(Query(InboxChunk)) == 2 * item.chunks
    later = ManualClock(store.clock.now() + timedelta(seconds=UPLOAD_S_MAX + 60))
    async with opened(url, later) as store:
        assert await Sweeper(store, ALL).sweep() == 1
        left = await store.privileged().get_many(InboxChunk, chunk_ids(item.upload_id, item.chunks))
        assert all(left)
        assert await store.privileged().count(Query(InboxChunk)) == item.chunks
        assert await store.privileged().count(Query(InboxUpload)) == 0
        assert await Inbox(store).body(item) == BODY
        assert await store.privileged().count(Query(InboxItem)) == 1
