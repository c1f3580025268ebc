"""Scenarios for what people do to signals, work items and candidates."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

from holdfast.services.gwi.models.work import Candidate, SignalContext, WorkItem, WorkSignal
from holdfast.services.gwi.operations.candidates import Candidates
from holdfast.services.gwi.operations.queue import ItemChange, QueueFilter, WorkQueue
from holdfast.services.gwi.operations.signals import Signals
from holdfast.store import patch
from holdfast.testing import ManualClock
from tests.operations.commit_log import CommitLog
from tests.operations.scenarios import World, scenario
from tests.services.gwi.harness import REPO, TENANT, Harness, gwi_harness
from tests.services.gwi.test_candidates import a_patch


@contextlib.asynccontextmanager
async def _work(world: World) -> AsyncIterator[Harness]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with gwi_harness(f"sqlite:///{home / 'gwi.db'}", ManualClock(), home) as harness:
            world.log = CommitLog(harness.runtime.store)
            yield harness


async def _item(harness: Harness) -> WorkItem:
    await harness.signal("d1")
    await harness.gwi.signals.process(harness.system)
    (item,) = (await harness.gwi.queue.page(TENANT, QueueFilter())).docs
    return item


@scenario(Signals.record)
async def _(world: World) -> None:
    async with _work(world) as harness:
        context = SignalContext(repo=REPO, title="By hand")
        doing = harness.gwi.signals.record(
            harness.by("dora"), source="manual", external_id="m1", context=context
        )
        assert (await world.act(doing)).status == "pending"


@scenario(Signals.process)
async def _(world: World) -> None:
    async with _work(world) as harness:
        await harness.signal("d1")
        assert (await world.act(harness.gwi.signals.process(harness.by("dora")))).processed == 1


@scenario(Signals.retry)
async def _(world: World) -> None:
    async with _work(world) as harness:
        signal = await harness.signal("d1")
        assert signal is not None
        await harness.store.commit(patch(WorkSignal, TENANT, signal.id, changes={"status": "failed"}))
        retried = await world.act(harness.gwi.signals.retry(harness.by("dora"), signal.id))
        assert retried.status == "pending"


@scenario(WorkQueue.dismiss)
async def _(world: World) -> None:
    async with _work(world) as harness:
        item = await _item(harness)
        dismissed = await world.act(harness.gwi.queue.dismiss(harness.by("dora"), item.id))
        assert dismissed.status == "dismissed"


@scenario(WorkQueue.change)
async def _(world: World) -> None:
    async with _work(world) as harness:
        item = await _item(harness)
        change = ItemChange(assigned_to="dean")
        (changed,) = await world.act(harness.gwi.queue.change(harness.by("dora"), [item.id], change))
        assert changed.assigned_to == "dean"


@scenario(WorkQueue.wake)
async def _(world: World) -> None:
    async with _work(world) as harness:
        item, clock = await _item(harness), harness.clock
        assert isinstance(clock, ManualClock)
        change = ItemChange(snoozed_until=clock.now() + timedelta(hours=1))
        await harness.gwi.queue.change(harness.by("dora"), [item.id], change)
        await clock.advance(3_601)
        (woken,) = await world.act(harness.gwi.queue.wake(harness.system, [item.id]))
        assert not woken.snoozed


async def _candidate(harness: Harness) -> Candidate:
    return await harness.gwi.candidates.create(harness.by("dora"), (await _item(harness)).id, patch=a_patch())


@scenario(Candidates.create)
async def _(world: World) -> None:
    async with _work(world) as harness:
        item = await _item(harness)
        made = await world.act(harness.gwi.candidates.create(harness.by("dora"), item.id))
        assert made.status == "draft"


@scenario(Candidates.revise)
async def _(world: World) -> None:
    async with _work(world) as harness:
        candidate = await _candidate(harness)
        doing = harness.gwi.candidates.revise(harness.by("dora"), candidate.id, patch=a_patch("b.py"))
        assert (await world.act(doing)).patch_hash != candidate.patch_hash


@scenario(Candidates.vote)
async def _(world: World) -> None:
    async with _work(world) as harness:
        candidate = await _candidate(harness)
        doing = harness.gwi.candidates.vote(harness.by("dean"), candidate.id, decision="approved")
        assert (await world.act(doing)).status == "approved"


@scenario(Candidates.revoke_vote)
async def _(world: World) -> None:
    async with _work(world) as harness:
        candidate = await _candidate(harness)
        await harness.gwi.candidates.vote(harness.by("dean"), candidate.id, decision="approved")
        doing = harness.gwi.candidates.revoke_vote(harness.by("dean"), candidate.id)
        assert (await world.act(doing)).status == "ready"


@scenario(Candidates.apply)
async def _(world: World) -> None:
    async with _work(world) as harness:
        candidate = await _candidate(harness)
        await harness.gwi.candidates.vote(harness.by("dean"), candidate.id, decision="approved")
        assert (await world.act(harness.gwi.candidates.apply(harness.by("adam"), candidate.id))).applying
