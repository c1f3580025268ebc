"""A process killed at random moments: of the six things that a commit holds, all are there or none is.

One test for each two of them, which stand first and last in every commit. `HOLDFAST_JOINT_CRASHES` says
how often a process is killed over all pairs (210 on SQLite, 60 on PostgreSQL).
"""

from __future__ import annotations

import itertools
import os
import random
from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.kit.audit import Audit, AuditEvent
from holdfast.kit.checkpoints import CheckpointDocument
from holdfast.kit.idempotency import IdempotencyDocument
from holdfast.kit.metering import UsageEvent, UsageSum
from holdfast.kit.outbox import Delivery
from holdfast.store import Query, Store
from tests.faults.fork_server import ForkServer
from tests.faults.joint_commit_worker import DOCUMENTS, LANES, PARTS, TENANT, Invoice

PAIRS = list(itertools.combinations(PARTS, 2))
CRASHES = {"sqlite": 210, "postgres": 60}


def _crashes(engine: str) -> int:
    return -(-int(os.environ.get("HOLDFAST_JOINT_CRASHES", CRASHES[engine])) // len(PAIRS))


@pytest.mark.parametrize(
    ("url", "crashes"),
    [(engine, _crashes(engine)) for engine in CRASHES],
    indirect=["url"],
    ids=[*CRASHES],
)
@pytest.mark.parametrize("pair", PAIRS, ids=[" and ".join(pair) for pair in PAIRS])
async def test_a_killed_process_leaves_both_parts_of_a_commit_or_neither(
    fork_server: ForkServer, url: str, crashes: int, pair: tuple[str, str]
) -> None:
    store = await open_store(url, DOCUMENTS)
    await store.migrate()
    kept: set[str] = set()
    for round in range(crashes):
        # Some kills fall into opening the store, some before the first commit, most among the commits.
        words, after_s = min(2, round % 8), random.uniform(0, 0.03)
        first, last = random.sample(pair, 2)
        said = fork_server.killed(
            "commit_jointly", url=url, round=round, first=first, last=last, after_s=after_s, words=words
        )
        kept |= {line.removeprefix("kept ") for line in said if line.startswith("kept ")}
        found = await _facts(store)
        assert found[pair[0]] == found[pair[1]]
        assert kept <= found[pair[0]], "what was acknowledged is there"
        assert all(facts == found["document"] for facts in found.values())
    assert len(kept) >= crashes // 2, "the processes were killed before they could commit"
    await _assert_sound(store, await _facts(store))
    await store.close()


async def _facts(store: Store) -> dict[str, set[str]]:
    """Which facts each part knows of."""
    return {
        "document": {doc.id for doc in await _all(store, Invoice)},
        "delivery": {doc.event_id for doc in await _all(store, Delivery)},
        "audit": {doc.subject for doc in await _all(store, AuditEvent)},
        "usage": {doc.fact for doc in await _all(store, UsageEvent)},
        "answer": {d.key for d in await _all(store, IdempotencyDocument) if d.status == "completed"},
        "checkpoint": {doc.state["fact"] for doc in await _all(store, CheckpointDocument)},
    }


async def _all(store: Store, cls: type[Any]) -> list[Any]:
    return [found.doc async for found in store.privileged().scan(Query(cls).limit(500))]


async def _assert_sound(store: Store, found: dict[str, set[str]]) -> None:
    """What the parts promise of themselves holds as well."""
    verdict = await Audit(store, tenant_id=TENANT).verify()
    assert verdict.intact
    assert verdict.events == len(found["document"])
    assert sum(doc.value for doc in await _all(store, UsageSum)) == len(found["document"])
    checkpoints = await _all(store, CheckpointDocument)
    latest = [doc for doc in checkpoints if doc.is_latest]
    assert len(latest) == len({doc.run_id for doc in checkpoints}) <= LANES
    for doc in latest:
        assert doc.number == sum(other.run_id == doc.run_id for other in checkpoints)
