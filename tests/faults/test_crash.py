"""A writer killed at any moment: what it was told is kept is there whole, nothing is there in part.

`HOLDFAST_CRASHES` says how often (100).
"""

from __future__ import annotations

import os
import random
from collections import Counter as Tally

import apsw
import pytest

from holdfast.app import open_store
from holdfast.store import Query, Store, create
from tests.faults.fork_server import ForkServer
from tests.faults.models import ALL, Counter, Part

CRASHES = int(os.environ.get("HOLDFAST_CRASHES", "100"))
PARTS = 3


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_killed_writer_leaves_every_commit_whole_or_absent(fork_server: ForkServer, url: str) -> None:
    store = await open_store(url, ALL)
    await store.migrate()
    await store.commit(create(Counter(id="shared")))
    await store.close()
    acknowledged = 0
    for round in range(CRASHES):
        # Some kills fall into opening the store, some before the first commit, most among the commits.
        words, after_s = min(2, round % 8), random.uniform(0, 0.03)
        said = fork_server.killed("write_batches", url=url, round=round, after_s=after_s, words=words)
        acknowledged += len(said)
        store = await open_store(url, ALL)
        await assert_round_is_whole(store, round, said)
        if round % 20 == 0 or round == CRASHES - 1:
            await assert_indexes_agree(store)
            assert_file_is_sound(url)
        await store.close()
    assert acknowledged > CRASHES, "the writers were killed before they could write"
    await assert_counted(url)


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_creates_that_a_killed_caller_was_told_of_are_there(fork_server: ForkServer, url: str) -> None:
    """On SQLite they are made in the caller's own thread."""
    store = await open_store(url, ALL)
    await store.migrate()
    await store.close()
    acknowledged = 0
    for round in range(CRASHES // 5):
        after_s = random.uniform(0, 0.05)
        said = fork_server.killed("settle_creates", url=url, round=round, after_s=after_s, words=2)
        kept = [int(line.split()[1]) for line in said if line.startswith("kept")]
        acknowledged += len(kept)
        store = await open_store(url, ALL)
        for batch in kept:
            ids = [f"{round:04}-{batch:05}-{n:02}" for n in range(100)]
            assert None not in await store.get_many(Counter, ids), f"batch {batch} was acknowledged"
        await store.commit(create(Counter(id=f"after-{round}")))
        await store.close()
    assert_file_is_sound(url)
    assert acknowledged >= CRASHES // 5, "the writers were killed before they could write"


async def assert_round_is_whole(store: Store, round: int, said: list[str]) -> None:
    """A batch is there with all its parts or none, and as the writer was told."""
    found = Tally([s.doc.batch async for s in store.scan(Query(Part).where("round", "==", round).limit(500))])
    assert set(found.values()) <= {PARTS}
    told = {batch: state for state, batch in (line.split() for line in said if " " in line)}
    for batch, state in told.items():
        if state == "kept":
            assert int(batch) in found, f"batch {batch} was acknowledged and is gone"
        if state == "removed":
            assert int(batch) not in found, f"batch {batch} was removed and is back"


async def assert_counted(url: str) -> None:
    """The count of batches was changed in the same commits, so it says how many there must be."""
    store = await open_store(url, ALL)
    counter = await store.get(Counter, "shared")
    parts = [s async for s in store.scan(Query(Part).limit(500))]
    assert await store.migrate() == []
    await store.close()
    assert counter is not None
    assert counter.doc.value * PARTS == len(parts)


async def assert_indexes_agree(store: Store) -> None:
    """Walking any index finds exactly what walking the ids finds."""
    by_id = {s.key: s async for s in store.scan(Query(Part).limit(500))}
    walks = [
        Query(Part).order_by("round"),
        Query(Part).order_by("round", "-batch"),
        Query(Part).order_by("text"),
    ]
    for query in walks:
        assert {s.key: s async for s in store.scan(query.limit(500))} == by_id
    for label in ("a", "b", "c", "x", "y", "z"):
        query = Query(Part).where("labels", "array-contains", label).limit(500)
        walked = {s.key: s async for s in store.scan(query)}
        assert walked == {key: s for key, s in by_id.items() if label in s.doc.labels}


def assert_file_is_sound(url: str) -> None:
    if url.startswith("sqlite:"):
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.close()
