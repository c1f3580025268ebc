"""Signals become work items, exactly once."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast.errors import ConflictError
from holdfast.services.gwi.models.records import AUDIT, AuditRecord
from holdfast.services.gwi.models.work import SignalContext, SignalQueue, WorkItem
from holdfast.services.gwi.operations.queue import QueueFilter
from holdfast.services.gwi.signal_worker import SignalWorker
from holdfast.store import Query, patch
from holdfast.testing import ManualClock
from tests.services.gwi.harness import REPO, TENANT, Harness, gwi_harness, opened

ROOT = Path(__file__).parents[3]


async def _items(harness: Harness) -> list[WorkItem]:
    page = await harness.gwi.queue.page(
        TENANT, QueueFilter(statuses=("queued", "in_progress", "dismissed", "completed"))
    )
    return page.docs


async def _statuses(harness: Harness) -> dict[str, str]:
    page = await harness.gwi.signals.page(TENANT, limit=500)
    return {one.external_id: one.status for one in page.docs}


async def test_a_signal_becomes_a_scored_item_with_one_commit(harness: Harness) -> None:
    await harness.signal("d1", labels=["Urgent"], body="Steps to reproduce", resource_url="https://gh/1")
    report = await harness.gwi.signals.process(harness.system)
    assert (report.processed, report.ignored, report.failed) == (1, 0, 0)
    (item,) = await _items(harness)
    (signal,) = (await harness.gwi.signals.page(TENANT)).docs
    assert (item.type, item.score, item.status) == ("issue_to_code", 85, "queued")
    assert item.dedupe_key == f"{TENANT}:acme/shop:issue:1"
    assert item.score_breakdown.explanation.startswith("85 of 100: 50 for a GitHub issue, +10 because")
    assert (item.signal_ids, item.evidence.source_urls) == ([signal.id], ["https://gh/1"])
    assert signal.status == "processed"
    assert signal.processing_meta is not None
    assert signal.processing_meta.work_item_id == item.id
    events = (await harness.store.query(Query(AuditRecord).order_by("sequence"))).docs
    assert [(one.action, one.subject, one.details["workItemId"]) for one in events] == [
        ("signal.processed", signal.id, item.id)
    ]


async def test_the_same_delivery_is_recorded_once(harness: Harness) -> None:
    assert await harness.signal("d1") is not None
    assert await harness.signal("d1") is None
    assert await harness.signal("d1", source="api") is not None
    with pytest.raises(ConflictError, match="before"):
        await harness.gwi.signals.record(
            harness.by("dora"), source="api", external_id="d1", context=SignalContext(repo=REPO)
        )
    assert len(await _statuses(harness)) == 1
    await harness.gwi.signals.process(harness.system)
    (item,) = await _items(harness)
    assert item.signal_count == 2


async def test_a_live_item_takes_further_signals_and_is_scored_again(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.signal("d1", title="A bug")
    await harness.gwi.signals.process(harness.system)
    await harness.signal("d2", title="Security: a bug", labels=["bug"])
    await harness.gwi.signals.process(harness.system)
    (item,) = await _items(harness)
    assert (item.title, item.score, item.signal_count) == ("Security: a bug", 90, 2)
    # An older event that comes later changes neither title nor score.
    await harness.signal("d0", title="Older", labels=["low"], occurred_s=1)
    await harness.gwi.signals.process(harness.system)
    (item,) = await _items(harness)
    assert (item.title, item.score, item.signal_count) == ("Security: a bug", 90, 3)


async def test_a_finished_item_takes_no_signal(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.signal("d1")
    await harness.gwi.signals.process(harness.system)
    (first,) = await _items(harness)
    await harness.gwi.queue.dismiss(harness.by("dora"), first.id, reason="not now")
    await harness.signal("d2")
    await harness.gwi.signals.process(harness.system)
    assert sorted(one.status for one in await _items(harness)) == ["dismissed", "queued"]


async def test_closing_ends_the_live_item_and_what_occurred_before(
    quick_harness: Harness, clock: ManualClock
) -> None:
    harness = quick_harness
    await harness.signal("d1")
    await harness.gwi.signals.process(harness.system)
    await clock.advance(60)
    await harness.signal("d2", action="closed", payload={"issue": {"state_reason": "completed"}})
    report = await harness.gwi.signals.process(harness.system)
    (item,) = await _items(harness)
    assert (item.status, item.close_reason) == ("completed", "closed at its source")
    assert (report.ignored, report.results[0].reason) == (1, "its subject was closed")
    # A delivery that was late: the subject is closed, so this is no work.
    await harness.signal("d3", action="labeled", occurred_s=clock.now().timestamp() - 30)
    assert (await harness.gwi.signals.process(harness.system)).ignored == 1
    await clock.advance(60)
    await harness.signal("d4", action="reopened")
    assert (await harness.gwi.signals.process(harness.system)).processed == 1
    assert sorted(one.status for one in await _items(harness)) == ["completed", "queued"]


async def test_closing_before_anything_was_known_makes_no_item(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.signal("late", action="closed")
    await harness.signal("early", action="opened", occurred_s=1)
    assert (await harness.gwi.signals.process(harness.system)).ignored == 2
    assert await _items(harness) == []


async def test_a_score_below_20_is_ignored_with_its_reason(quick_harness: Harness) -> None:
    harness = quick_harness
    await harness.signal("d1", source="github_comment", resource_type="comment", labels=["low"])
    report = await harness.gwi.signals.process(harness.system)
    assert (report.ignored, report.results[0].reason) == (1, "its score of 10 is below 20")
    assert await _items(harness) == []


async def test_a_batch_is_processed_oldest_first(quick_harness: Harness, clock: ManualClock) -> None:
    harness = quick_harness
    recorded = []
    for number in range(12):
        signal = await harness.signal(f"d{number}", resource_number=number)
        assert signal is not None
        recorded.append(signal.id)
        await clock.advance(1)
    first = await harness.gwi.signals.process(harness.system, limit=5)
    rest = await harness.gwi.signals.process(harness.system, limit=50)
    assert [one.signal_id for one in (*first.results, *rest.results)] == recorded
    assert len(first.results) == 5


async def test_a_signal_that_can_not_be_processed_fails_alone_and_can_be_retried(
    quick_harness: Harness,
) -> None:
    harness = quick_harness
    await harness.signal("d1")
    await harness.gwi.signals.process(harness.system)
    (item,) = await _items(harness)
    # The item has no room for another address.
    await harness.store.commit(patch(WorkItem, TENANT, item.id, changes={"summary": "x" * 1_046_000}))
    bad = await harness.signal("bad", occurred_s=1, resource_url="https://gh/" + "x" * 3_000)
    await harness.signal("good", resource_number=2)
    report = await harness.gwi.signals.process(harness.system)
    assert (report.processed, report.failed) == (1, 1)
    assert bad is not None
    failed = await harness.gwi.signals.get(TENANT, bad.id)
    assert failed.processing_meta is not None
    assert (failed.processing_meta.error_message or "").startswith("TooLargeError: ")
    await harness.store.commit(patch(WorkItem, TENANT, item.id, changes={"summary": ""}))
    await harness.gwi.signals.retry(harness.by("dora"), bad.id)
    assert (await harness.gwi.signals.process(harness.system)).processed == 1
    with pytest.raises(ConflictError, match="the signal is processed"):
        await harness.gwi.signals.retry(harness.by("dora"), bad.id)


async def test_handles_that_process_the_same_signals_make_one_item_of_one_subject(
    any_url: str, clock: ManualClock, tmp_path: Path
) -> None:
    async with gwi_harness(any_url, clock, tmp_path) as one, opened(any_url, clock, tmp_path) as two:
        for number in range(6):
            await one.signal(f"d{number}", resource_number=number % 2)
        await asyncio.gather(*(each.gwi.signals.process(each.system) for each in (one, two, one, two)))
        await _expect_one_item_each(one, signals=6, subjects=2)


async def _expect_one_item_each(harness: Harness, *, signals: int, subjects: int) -> None:
    counts = [item.signal_count for item in await _items(harness)]
    assert sorted(counts) == [signals // subjects] * subjects
    assert set((await _statuses(harness)).values()) == {"processed"}
    verified = await harness.runtime.audit(TENANT, models=AUDIT).verify()
    assert (verified.intact, verified.events) == (True, signals)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_sixteen_processes_make_one_item_of_one_subject(
    request: pytest.FixtureRequest, engine: str, clock: ManualClock, tmp_path: Path
) -> None:
    url: str = request.getfixturevalue(f"{engine}_url")
    async with gwi_harness(url, clock, tmp_path) as harness:
        for number in range(8):
            await harness.signal(f"d{number}", resource_number=number % 2)
        command = [sys.executable, "-W", "error", "-m", "tests.services.gwi.signal_processes"]
        command += [url, str(tmp_path), "16"]
        process = await asyncio.create_subprocess_exec(
            *command, cwd=ROOT, stdout=asyncio.subprocess.PIPE
        )  # fmt: skip
        said, _ = await process.communicate()
        assert process.returncode == 0
        own = [int(line) for line in said.split()]
        assert (len(own), sum(own)) == (16, 8)
        await _expect_one_item_each(harness, signals=8, subjects=2)


async def test_the_worker_processes_what_is_recorded_and_rests(harness: Harness) -> None:
    await harness.found("gh-org-8")
    for number in range(3):
        await harness.signal(f"d{number}", resource_number=number)
        await harness.signal(f"d{number}", resource_number=number, tenant_id="gh-org-8")
    worker = harness.runtime.parts["gwi"].loops["signals"]
    assert isinstance(worker, SignalWorker)
    await worker.work_off()
    assert len(await _items(harness)) == 3
    stored = await harness.store.get(SignalQueue, TENANT)
    assert (stored.doc.due_at, stored.doc.held_by) == (None, "")
    await harness.signal("d9", resource_number=9)
    await worker.work_off()
    assert len(await _items(harness)) == 4
