"""Two services with every part under their own names, each in a process of its own, one of them killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.app import open_store
from holdfast.kit.runs import Runs
from holdfast.runtime import KIT_DOCUMENTS
from tests.examples.own_parts import HARBOUR, ORCHARD, TENANT
from tests.faults.controlled_process import run_processes
from tests.kit.eventually import ended

WORKER = "tests.faults.own_parts_worker"

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres"], indirect=True)


async def test_a_killed_process_of_one_service_leaves_the_other_alone(url: str, tmp_path: Path) -> None:
    store = await open_store(url, [*KIT_DOCUMENTS, *ORCHARD.documents, *HARBOUR.documents])
    await store.migrate()
    for one in (ORCHARD, HARBOUR):
        await one.seed(store)
    order = {"url": url, "home": str(tmp_path)}
    runs = {one.name: Runs(store.tenant(TENANT), models=one.runs) for one in (ORCHARD, HARBOUR)}
    async with (
        run_processes(WORKER, "work", order | {"service": "orchard"}) as (orchard,),
        run_processes(WORKER, "work", order | {"service": "harbour"}) as (harbour,),
    ):
        await orchard.hear_until("open")
        await harbour.hear_until("open")
        first = {one.name: await one.start(store) for one in (ORCHARD, HARBOUR)}
        for name, run_id in first.items():
            assert (await ended(runs[name], run_id, within_s=60)).result == name
        await harbour.kill()
        waiting = await HARBOUR.start(store)
        for _ in range(2):
            run = await ended(runs["orchard"], await ORCHARD.start(store), within_s=60)
            assert run.result == "orchard"
        left = await runs["harbour"].get(waiting)
        assert left is not None
        assert (left.status, left.fence) == ("pending", 0), "the other process has not even claimed it"
        async with run_processes(WORKER, "work", order | {"service": "harbour"}) as (again,):
            assert (await ended(runs["harbour"], waiting, within_s=60)).result == "harbour"
            again.say("stop")
            await again.end()
        orchard.say("stop")
        await orchard.end()
    expected = {"runs": 3, "audit": 3, "usage": 3, "deliveries": 3, "connections": 1}
    assert await ORCHARD.stored(store) == expected
    assert await HARBOUR.stored(store) == expected | dict.fromkeys(
        ("runs", "audit", "usage", "deliveries"), 2
    )
    await store.close()
