"""A message of 25 MB through a real process on every engine, in bounded memory, and one killed half-way."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import io
import random
from datetime import timedelta
from pathlib import Path

import aiohttp
import pytest

from holdfast.app import open_store
from holdfast.kit.inbox import Inbox, InboxChunk, InboxItem, InboxQueue, InboxUpload
from holdfast.kit.inbox.models import KEEP_FINISHED_S
from holdfast.kit.retention import Sweeper
from holdfast.model import Document
from holdfast.store import Query, Store
from holdfast.testing import ManualClock
from tests.http.large_messages import BYTES_MAX, PATH, SECRET, Digest
from tests.http.processes import announce, holdfast_process

MEMORY_BYTES_MAX = 200_000_000
DOCUMENTS: list[type[Document]] = [InboxItem, InboxChunk, InboxUpload, InboxQueue, Digest]


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
def store_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


def _peak_bytes(pid: int, store_url: str) -> int:
    """The most memory that a process has had, without the part of its SQLite file that it maps: that is the
    system's cache."""
    status = Path(f"/proc/{pid}/status").read_text()
    peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
    if not store_url.startswith("sqlite:///"):
        return peak
    return peak - Path(store_url.removeprefix("sqlite:///").partition("?")[0]).stat().st_size


async def _post(address: str, name: str, body: bytes) -> int:
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {"x-github-delivery": name, "x-hub-signature-256": f"sha256={signature}"}
    async with (
        aiohttp.ClientSession() as client,
        client.post(address + PATH, data=io.BytesIO(body), headers=headers) as answer,
    ):
        return answer.status


async def _handled(store: Store, name: str) -> str:
    async with asyncio.timeout(60):
        while (found := await store.get(Digest, name)) is None:  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    return found.doc.digest


async def test_a_message_of_25_mb_is_kept_handled_and_pruned_in_less_than_200_mb(
    tmp_path: Path, store_url: str
) -> None:
    announce(tmp_path, "tests.http.large_messages:SERVICE")
    body = random.Random(1).randbytes(BYTES_MAX)
    async with holdfast_process(
        tmp_path, "serve", "--port", "0", "--only", "digests", environ={"HOLDFAST_STORE": store_url}
    ) as (process, address):
        assert await _post(address, "m", body) == 202
        store = await open_store(store_url, DOCUMENTS)
        assert await _handled(store, "m") == hashlib.sha256(body).hexdigest()
        assert await _post(address, "m", body) == 200
        assert _peak_bytes(process.pid, store_url) < MEMORY_BYTES_MAX
    later = ManualClock(store.clock.now() + timedelta(seconds=KEEP_FINISHED_S + 60))
    await store.close()
    store = await open_store(store_url, DOCUMENTS, clock=later)
    assert len((await Inbox(store).page("done"))[0]) == 1
    assert await Sweeper(store, DOCUMENTS).sweep() == 1
    assert await store.privileged().count(Query(InboxChunk)) == 0
    await store.close()
