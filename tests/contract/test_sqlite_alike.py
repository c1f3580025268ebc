"""Many settled alike are settled as if each had been settled by itself, only faster."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import msgspec

from holdfast.app import open_store
from holdfast.store import Committed, Increment, Store, Write, create, delete, patch
from holdfast.store.contract.models import NOON, Chore, Job
from holdfast.testing import ManualClock

JOBS = [f"job-{n:02}" for n in range(20)]


async def claimed(url: str) -> tuple[Store, dict[str, Any]]:
    """Twenty claimed jobs, of which some were lost since: taken over, removed, another tenant's."""
    store = await open_store(url, [Job, Chore], clock=ManualClock(NOON))
    await store.migrate()
    worker = store.privileged()
    odd = {"job-07": "other"}
    jobs = [Job(id=id, tenant_id=odd.get(id, "t"), due=NOON, result='"ż\\👩\x07"') for id in JOBS]
    await worker.settle([[create(job)] for job in jobs])
    taken = await worker.claim_due(Job, limit=50, lease_s=60, owner="first")
    await worker.commit(patch(Job, "job-03", changes={"fence": Increment(1)}), delete(Job, "job-05"))
    await worker.commit(patch(Job, "job-04", changes={"result": "half"}))
    return store, {s.key: s for s in taken}


def told(outcomes: list[Any]) -> list[str]:
    return ["kept" if isinstance(o, Committed) else f"{o.code}: {o}" for o in outcomes]


async def settled(
    url: str, changes: dict[str, Any], *, together: bool, tenant: str | None
) -> tuple[Any, Any]:
    store, taken = await claimed(url)
    handle = store.privileged() if tenant is None else store.tenant(tenant)
    writes: list[list[Write]] = [[patch(Job, id, changes=changes, expect=taken[id].fenced)] for id in JOBS]
    if together:
        outcomes = await handle.settle(writes)
    else:
        outcomes = [outcome for one in writes for outcome in await handle.settle([one])]
    found = await store.privileged().get_many(Job, JOBS)
    await store.close()
    return told(outcomes), [s and s.doc for s in found]


def bodies(path: Path) -> list[Job]:
    link = apsw.Connection(str(path))
    rows = list(link.execute("SELECT _body FROM jobs ORDER BY _key"))
    link.close()
    return [msgspec.json.decode(str(body), type=Job) for (body,) in rows]


async def test_settling_together_is_settling_one_by_one(tmp_path: Path) -> None:
    cases: list[dict[str, Any]] = [
        {"status": "done", "due": None}, {"due": None}, {"due": NOON + timedelta(days=1), "owner": None},
        {"due": NOON, "status": "nonsense"}, {"due": NOON, "owner": "a\0b"}, {"due": NOON, "result": "x"},
        {"status": "done"}, {"due": "soon"}, {"due": NOON, "fence": 9}, {"due": None, "owner": 'o"\\ż'},
    ]  # fmt: skip
    for number, changes in enumerate(cases):
        for tenant in (None, "t"):
            paths = [tmp_path / f"{number}-{tenant}-{way}.db" for way in ("one", "all")]
            answers = [
                await settled(f"sqlite:///{path}", changes, together=together, tenant=tenant)
                for path, together in zip(paths, (False, True), strict=True)
            ]
            assert answers[0] == answers[1], changes
            assert bodies(paths[0]) == bodies(paths[1]), changes


async def test_the_json_says_what_the_columns_say(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    changes = {"status": "done", "due": None}
    outcomes, documents = await settled(f"sqlite:///{path}", changes, together=True, tenant=None)
    assert outcomes.count("kept") == 18
    kept = [doc for doc in documents if doc is not None and doc.status == "done"]
    assert len(kept) == 18
    assert [body for body in bodies(path) if body.status == "done"] == kept
