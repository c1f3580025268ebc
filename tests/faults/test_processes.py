"""Several processes on one store: nothing lost, nothing made twice, nobody starved."""

from __future__ import annotations

import itertools
from collections import Counter as Counting
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest

from holdfast.store import create
from tests.faults.fork_server import ForkServer
from tests.faults.models import ALL, Counter, Seat, Task
from tests.faults.store_opener import opener

ROUND_S = 0.4
TURNS_S = 1.5
# What the slowest of four equal processes gets, at the least, of what the fastest gets.
FAIR_SHARE = 0.05
ROUNDS_MAX = 15

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)


opened = opener(ALL, migrate=True)


def assert_nobody_starved(reports: list[dict[str, Any]]) -> None:
    assert _is_fair(reports), f"shares of one store: {sorted(report['done'] for report in reports)}"


def _is_fair(reports: list[dict[str, Any]]) -> bool:
    done = sorted(report["done"] for report in reports)
    return bool(done[0] >= max(1, done[-1] * FAIR_SHARE))


@pytest.mark.parametrize("role", ["increment", "transact"])
async def test_no_update_is_lost_and_no_process_is_starved(
    fork_server: ForkServer, url: str, role: str
) -> None:
    async with opened(url) as store:
        await store.commit(create(Counter(id="shared")))
        # A busy machine may be unfair for a moment; who starves gets nothing however long it lasts.
        reports: list[dict[str, Any]] = [{"done": 0} for _ in range(4)]
        for _ in range(ROUNDS_MAX):
            latest = fork_server.together(role, url=url, seconds=ROUND_S)
            reports = [{"done": a["done"] + b["done"]} for a, b in zip(reports, latest, strict=True)]
            if _is_fair(reports):
                break
        found = await store.get(Counter, "shared")
    assert found is not None
    assert found.doc.value == sum(report["done"] for report in reports)
    assert_nobody_starved(reports)


async def test_of_processes_that_create_the_same_ids_each_id_is_granted_to_one(
    fork_server: ForkServer, url: str
) -> None:
    got: Counting[str] = Counting()
    async with opened(url) as store:
        # All seats are gone in moments, and a busy machine may let a process come too late for all of them.
        for round in range(ROUNDS_MAX):
            reports = fork_server.together("take_seats", url=url, first=round * 200, seats=200)
            granted = {id: report["name"] for report in reports for id in report["mine"]}
            found = await store.get_many(Seat, sorted(granted))
            assert sum(len(report["mine"]) for report in reports) == len(granted) == 200
            assert {s.doc.id: s.doc.taken_by for s in found if s is not None} == granted
            got.update(granted.values())
            if len(got) == len(reports):
                break
    assert len(got) == 4


async def test_no_document_is_held_by_two_processes_at_once(fork_server: ForkServer, url: str) -> None:
    ids = [f"task-{n}" for n in range(12)]
    async with opened(url) as store:
        past = store.clock.now() - timedelta(seconds=1)
        await store.commit(*(create(Task(id=id, due=past)) for id in ids))
        reports = fork_server.together("claim", url=url, seconds=TURNS_S)
        found = await store.get_many(Task, ids)
    turns = turns_by_task(reports)
    for snapshot in found:
        assert snapshot is not None
        # Every claim ever made is in the reports, so the fences say whether one was given out twice.
        mine = sorted(turns[snapshot.doc.id])
        assert [fence for fence, _, _ in mine] == list(range(1, snapshot.doc.fence + 1))
        for (_, _, ended), (_, began, _) in itertools.pairwise(mine):
            assert began >= ended
    assert_nobody_starved(reports)


def turns_by_task(reports: list[dict[str, Any]]) -> dict[str, list[tuple[int, int, int]]]:
    """For each task: fence, when the lease began, when it ended or was given back."""
    found: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for report in reports:
        for id, fence, began, ended in report["turns"]:
            found[id].append((fence, began, ended))
    return found
