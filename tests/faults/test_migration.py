"""A migration killed on the way is gone on with, and ends where an undisturbed one does."""

from __future__ import annotations

import pytest

from holdfast.app import open_store
from holdfast.store import Query, create
from tests.faults.fork_server import ForkServer
from tests.faults.models import NewPaper, OldPaper

PAPERS = 6_000


@pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)
async def test_a_migration_killed_on_the_way_ends_complete(fork_server: ForkServer, url: str) -> None:
    store = await open_store(url, [OldPaper])
    await store.migrate()
    for start in range(0, PAPERS, 500):
        await store.settle([[create(OldPaper(id=f"{n:05}", year=n % 50))] for n in range(start, start + 500)])
    await store.close()
    left = await kill_on_the_way(fork_server, url)
    assert any(any("fill" in step for step in steps) for steps in left), left
    store = await open_store(url, [NewPaper])
    await store.migrate()
    assert await store.migrate() == await store.diff() == []
    by_rank = [
        s.doc async for s in store.scan(Query(NewPaper).where("rank", "==", 7).order_by("-year").limit(500))
    ]
    assert sorted(p.id for p in by_rank) == [f"{n:05}" for n in range(PAPERS)]
    assert [p.year for p in by_rank] == sorted((n % 50 for n in range(PAPERS)), reverse=True)
    assert await store.count(Query(NewPaper).where("words", "array-contains", "none")) == PAPERS
    await store.close()


async def kill_on_the_way(fork_server: ForkServer, url: str) -> list[list[str]]:
    """Kill the migration again and again, a little later each time; gives what was left to do."""
    left = []
    for kill in range(8):
        fork_server.killed("migrate", url=url, after_s=0.015 * kill)
        store = await open_store(url, [NewPaper])
        left.append(await store.diff())
        await store.close()
    return left
