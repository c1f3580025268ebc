"""Runs as operators meet them: on pages, over HTTP, at the command line."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from datetime import timedelta
from html import unescape
from pathlib import Path

import pytest

from holdfast.kit.audit import AuditEvent
from holdfast.kit.runs import RunDocument
from holdfast.store import Query, patch
from tests.console.console_harness import ConsoleHarness, Visitor, console
from tests.console.workshop import Order, Workshop, runs_of
from tests.kit.eventually import ended


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture
async def harness(tmp_path: Path, workshop: Workshop) -> AsyncIterator[ConsoleHarness]:
    """Nothing works: runs stay as they were put."""
    async with console(tmp_path, services=[workshop.service(works=False)]) as made:
        yield made


async def _actions(
    harness: ConsoleHarness, tenant_id: str = "-", outcome: str = "done"
) -> list[tuple[str, str]]:
    page = await harness.runtime.store.tenant(tenant_id).query(Query(AuditEvent).order_by("sequence"))
    events = [one for one in page.docs if one.action.startswith("run.") and one.outcome == outcome]
    return [(one.action, one.subject) for one in events]


def _listed(text: str) -> list[str]:
    return re.findall(r'<tr data-key="([^"]+)"', text)


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_runs_are_listed_newest_first_by_state_and_workflow_on_every_engine(
    request: pytest.FixtureRequest, tmp_path: Path, workshop: Workshop, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    async with console(tmp_path, services=[workshop.service(works=False)], store=url) as harness:
        runs = runs_of(harness.runtime)
        first, second = await runs.start(workshop.chair), await runs.start(workshop.stool)
        third = await runs.start(workshop.chair)
        await runs.cancel(first.id)
        order = await runs_of(harness.runtime, kind=Order).start(workshop.chair)
        ann = await harness.signed_in("ann")
        found = {
            asked: _listed(await ann.page(f"/console/runs?{asked}"))
            for asked in ("", "status=pending", "type=chair", "type=chair&status=cancelled",
                          "collection=orders", "status=failed")
        }  # fmt: skip
    assert found == {
        "": [third.id, second.id, first.id],
        "status=pending": [third.id, second.id],
        "type=chair": [third.id, first.id],
        "type=chair&status=cancelled": [first.id],
        "collection=orders": [order.id],
        "status=failed": [],
    }


async def test_many_runs_come_in_pages_that_keep_the_filter(
    harness: ConsoleHarness, workshop: Workshop
) -> None:
    runs = runs_of(harness.runtime)
    started = [(await runs.start(workshop.chair)).id for _ in range(60)]
    ann = await harness.signed_in("ann")
    text = await ann.page("/console/runs?status=pending&type=chair")
    following = re.search(r'href="([^"]+)" rel="next"', text)
    assert following is not None
    rest = await ann.page(unescape(following[1]))
    assert _listed(text) + _listed(rest) == started[::-1]


async def test_a_run_shows_each_step_with_its_times_tries_and_error(
    tmp_path: Path, workshop: Workshop
) -> None:
    workshop.saw.set()
    async with console(tmp_path, services=[workshop.service()], work=True) as harness:
        runs = runs_of(harness.runtime)
        run = await runs.start(workshop.chair, input={"wood": "rotten"})
        await ended(runs, run.id)
        text = await (await harness.signed_in("ann")).page(f"/console/runs/holdfast_runs/{run.id}")
    steps = dict(re.findall(r'<tr data-key="step-\d+-(\w+)".*?class="state tone-\w+">(\w+)<', text, re.S))
    assert steps == {"measure": "completed", "saw": "failed", "glue": "skipped"}
    assert text.count("ValueError: the wood &lt;b&gt;broke&lt;/b&gt;") >= 2
    assert "not begun" in text
    assert "1 failed" in text
    assert "1 of 3 done" in text
    assert "&#34;wood&#34;: &#34;rotten&#34;" in text
    assert re.findall(r'data-act="[^"]*/(\w+)\?tenant=-"', text.partition('id="run"')[2]) == ["retry"]


async def test_who_only_looks_on_sees_the_steps_but_not_what_they_work_with(
    tmp_path: Path, workshop: Workshop
) -> None:
    workshop.saw.set()
    async with console(tmp_path, services=[workshop.service()], work=True) as harness:
        runs = runs_of(harness.runtime, kind=Order)
        run = await runs.start(workshop.chair, input={"wood": "oak"})
        await ended(runs, run.id)
        path = f"/console/runs/orders/{run.id}"
        seen = await (await harness.signed_in("vic", role="viewer")).page(path)
        whole = await (await harness.signed_in("ann")).page(path)
    assert "3 of 3 done" in seen
    assert "oak" not in seen
    assert "oak" in whole
    assert "&#34;apiToken&#34;: &#34;••••••&#34;" in whole
    assert "hidden&#34;" not in whole


async def _button(visitor: Visitor, page: str, act: str) -> str:
    found = re.search(rf'data-act="([^"]+/{act}[^"]*)"', await visitor.page(page))
    assert found is not None, act
    return unescape(found[1])


async def test_a_run_that_nobody_holds_is_cancelled_at_once_and_on_record(
    harness: ConsoleHarness, workshop: Workshop
) -> None:
    runs = runs_of(harness.runtime, "acme")
    run = await runs.start(workshop.chair)
    ann, vic = await harness.signed_in("ann"), await harness.signed_in("vic", role="viewer", tenant_id="acme")
    page = f"/console/runs/holdfast_runs/{run.id}"
    url = await _button(ann, f"{page}?tenant=acme", "cancel")
    assert "data-act" not in (await vic.page(page)).partition('id="run"')[2]
    assert (await vic.act(url))[0] == 403
    status, told, _ = await ann.act(url, {"reason": "wrong wood"})
    assert (status, json.loads(told)["status"]) == (200, "cancelled")
    assert "wrong wood" in await ann.page(f"{page}?tenant=acme")
    assert await _actions(harness, "acme") == [("run.cancelled", run.id)]
    assert await _actions(harness, "acme", "refused") == [("run.cancelled", run.id)]
    status, told, _ = await ann.act(url)
    assert (status, "has ended" in told) == (409, True)
    assert len(await _actions(harness, "acme")) == 1
    assert await _actions(harness, "acme", "failed") == [("run.cancelled", run.id)]


async def test_of_two_who_cancel_at_once_each_is_on_record_at_most_once(
    harness: ConsoleHarness, workshop: Workshop
) -> None:
    run = await runs_of(harness.runtime).start(workshop.chair)
    ann = await harness.signed_in("ann")
    csrf, url = {"x-csrf-token": await ann.csrf()}, f"/api/v1/runs/holdfast_runs/{run.id}/cancel"
    done = await asyncio.gather(*(ann.ask("POST", url, json={}, headers=csrf) for _ in range(5)))
    taken = [status for status, _, _ in done].count(200)
    assert {status for status, _, _ in done} <= {200, 409}
    assert taken >= 1
    assert len(await _actions(harness)) == taken


async def test_a_run_in_a_workers_hands_ends_after_its_present_step(
    tmp_path: Path, workshop: Workshop
) -> None:
    async with console(tmp_path, services=[workshop.service()], work=True) as harness:
        runs = runs_of(harness.runtime)
        run = await runs.start(workshop.chair)
        await workshop.sawing.wait()
        ann = await harness.signed_in("ann")
        page = f"/console/runs/holdfast_runs/{run.id}"
        assert "in the hands of" in await ann.page(page)
        assert (await ann.act(await _button(ann, page, "cancel")))[0] == 200
        text = await ann.page(page)
        assert "The step under way comes to its end first" in text
        assert "data-act" not in text.partition('id="run"')[2]
        workshop.saw.set()
        over = await ended(runs, run.id)
    assert [step.status for step in over.steps] == ["completed", "completed", "skipped"]
    assert over.status == "cancelled"


async def test_a_run_that_waits_for_something_goes_on_when_told(tmp_path: Path, workshop: Workshop) -> None:
    workshop.saw.set()
    workshop.dry = False
    async with console(tmp_path, services=[workshop.service()], work=True) as harness:
        runs = runs_of(harness.runtime)
        run = await runs.start(workshop.chair)
        ann = await harness.signed_in("ann")
        page = f"/console/runs/holdfast_runs/{run.id}"
        async with asyncio.timeout(60):
            while "waits for something to happen" not in await ann.page(page):  # noqa: ASYNC110 - a page tells nobody
                await asyncio.sleep(0.01)
        workshop.dry = True
        url = await _button(ann, page, "wake")
        assert (await ann.act(url))[0] == 200
        assert (await ended(runs, run.id)).status == "completed"
        assert await _actions(harness) == [("run.woken", run.id)]
        assert (await ann.act(url))[0] == 409


async def test_a_run_that_failed_goes_on_when_told_and_that_is_on_record_once(
    tmp_path: Path, workshop: Workshop
) -> None:
    workshop.saw.set()
    async with console(tmp_path, services=[workshop.service()], work=True) as harness:
        runs = runs_of(harness.runtime)
        run = await runs.start(workshop.chair, input={"wood": "rotten"})
        await ended(runs, run.id)
        ann, vic = await harness.signed_in("ann"), await harness.signed_in("vic", role="viewer")
        url = await _button(ann, f"/console/runs/holdfast_runs/{run.id}", "retry")
        assert (await vic.act(url))[0] == 403
        workshop.mended = True
        csrf = {"x-csrf-token": await ann.csrf()}
        done = await asyncio.gather(*(ann.ask("POST", url, json={}, headers=csrf) for _ in range(3)))
        assert sorted(status for status, _, _ in done) == [200, 409, 409]
        over = await ended(runs, run.id)
        assert (over.status, over.error) == ("completed", None)
        assert await _actions(harness) == [("run.retried", run.id)]
        status, told, _ = await ann.act(url)
        assert (status, "only a failed run" in told) == (409, True)
        page = await harness.runtime.store.tenant("-").query(Query(AuditEvent).order_by("-sequence"))
        (event,) = [one for one in page.docs if (one.action, one.outcome) == ("run.retried", "done")]
        assert "broke" in event.details["error"]


async def test_a_service_whose_runs_end_for_good_offers_no_retry(tmp_path: Path, workshop: Workshop) -> None:
    workshop.saw.set()
    async with console(tmp_path, services=[workshop.service()], work=True) as harness:
        runs = runs_of(harness.runtime, kind=Order)
        run = await runs.start(workshop.chair, input={"wood": "rotten"})
        await ended(runs, run.id)
        ann = await harness.signed_in("ann")
        assert "data-act" not in (await ann.page(f"/console/runs/orders/{run.id}")).partition('id="run"')[2]
        status, told, _ = await ann.act(f"/api/v1/runs/orders/{run.id}/retry")
        assert (status, "start another" in told) == (422, True)


async def test_a_run_of_another_tenant_is_not_there(harness: ConsoleHarness, workshop: Workshop) -> None:
    run = await runs_of(harness.runtime, "acme").start(workshop.chair)
    ben = await harness.signed_in("ben", role="admin", tenant_id="hoge")
    assert _listed(await ben.page("/console/runs")) == []
    await ben.page(f"/console/runs/holdfast_runs/{run.id}", 404)
    await ben.page(f"/console/runs/holdfast_runs/{run.id}?tenant=acme", 403)
    for act in ("cancel", "wake"):
        assert (await ben.act(f"/api/v1/runs/holdfast_runs/{run.id}/{act}"))[0] == 404
        assert (await ben.act(f"/api/v1/runs/holdfast_runs/{run.id}/{act}?tenant=acme"))[0] == 403
    assert (await runs_of(harness.runtime, "acme").get(run.id)).status == "pending"  # type: ignore[union-attr]


async def test_what_is_asked_wrongly_is_told(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    for path, status, said in (
        ("/console/runs?status=lost", 422, "status is one of"),
        ("/console/runs?collection=none", 404, "they are in holdfast_runs, orders"),
        ("/console/runs?cursor=x", 400, "not a cursor"),
        ("/console/runs/none/x", 404, "no runs are stored in"),
        ("/console/runs/orders/none", 404, "no run"),
        ("/console/runs/orders/" + "x" * 2_000, 422, "bytes"),
    ):
        assert said in await ann.page(path, status), path
    status, told, _ = await ann.act("/api/v1/runs/orders/none/cancel", {"reason": ""})
    assert (status, "reason" in told) == (422, True)


async def test_a_claim_that_has_run_out_is_told(harness: ConsoleHarness, workshop: Workshop) -> None:
    store = harness.runtime.store.tenant("-")
    run = await runs_of(harness.runtime).start(workshop.chair)
    (held,) = await harness.runtime.store.privileged().claim_due(
        RunDocument, limit=1, lease_s=60, owner="w-1"
    )
    ann, page = await harness.signed_in("ann"), f"/console/runs/holdfast_runs/{run.id}"
    assert "in the hands of w-1" in await ann.page(page)
    past = harness.runtime.clock.now() - timedelta(seconds=1)
    await store.commit(patch(RunDocument, run.id, changes={"due_at": past}, expect=held.fenced))
    assert "its worker is gone; another takes it over" in await ann.page(page)
