"""What the pages answer on every engine, to wrong questions, and to whom."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.services.renewals import service
from holdfast.services.renewals.ingest.sources import Folder
from holdfast.services.renewals.models import Property, SourceState
from holdfast.simulators.rms import Behave, RmsSimulator
from holdfast.store import create, delete, patch, put
from tests.browser import renewals_fixtures as scene
from tests.console.console_harness import ConsoleHarness, console
from tests.services.renewals.server import settle_in

ROOT: Final = "/console/renewals"
HOUSE: Final = f"{ROOT}/properties/{scene.PROPERTIES[0]}"
OUTBOX: Final = f"outbox=renewals&endpoint={scene.PROPERTIES[0]}"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[service], work=True) as made:
        yield made


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_every_page_shows_what_there_is_on_every_engine(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    async with (
        RmsSimulator(clock=SystemClock()) as rms,
        console(tmp_path, store=url, services=[service], work=True) as harness,
    ):
        ann = await harness.signed_in("ann")
        assert "No properties yet." in await ann.page(ROOT)
        assert "No outcomes yet." in await ann.page(f"{ROOT}/calibration")
        await scene.settle(harness.runtime, residents=12, per_property=6)
        assert "not calculated yet" in await ann.page(HOUSE)
        assert "not calculated yet" in await ann.page(f"{HOUSE}/what-if")
        assert "not calculated yet" in await ann.page(f"{HOUSE}/runs")
        for months_back in (1, 0):
            await scene.calculate(harness.runtime, months_back=months_back)
        rms.run(Behave(failure_rate=1.0, failure_status=400))
        await scene.connect(harness.runtime, rms)
        await _shown(harness)


async def _shown(harness: ConsoleHarness) -> None:
    ann, portfolio = await harness.signed_in("ben"), scene.renewals_of(harness.runtime).portfolio("-")
    run = await portfolio.runs.latest(scene.PROPERTIES[0])
    assert run is not None
    (first,) = (await portfolio.risk(run, scene.PROPERTIES[0], limit=1)).docs
    by = scene.operator(harness.runtime)
    told = await scene.renewals_of(harness.runtime).trigger(by, scene.PROPERTIES[0], first.resident_id)
    await scene.settled(harness.runtime, scene.PROPERTIES[0], status="dlq", count=1)
    assert "1 dead letter" in await ann.page("/console")
    assert f"{run.medium} medium" in await ann.page(ROOT)
    house = await ann.page(HOUSE)
    # Who is not flagged is shown, but is not told of.
    assert house.count("<tr data-key") == run.total_residents
    assert house.count('name="resident"') == run.flagged
    assert "Scores of the last 2 runs" in house
    (latest, older), _ = await portfolio.runs.all(scene.PROPERTIES[0])
    assert latest == run
    assert "An earlier run" in await ann.page(f"{HOUSE}?run={older.job_id}")
    assert f"run={older.job_id}" in await ann.page(f"{HOUSE}/runs")
    assert unescape(first.signals["daysToExpiryDays"].sentence) in unescape(house)
    assert f"{first.risk_score}</b>" in await ann.page(f"{HOUSE}?sort=days")
    assert first.name in await ann.page(f"{HOUSE}?q={first.name.split()[-1]}")
    for link in (f'/console/deliveries?{OUTBOX}"', f'/console/dead-letters?{OUTBOX}"'):
        assert link in unescape(house)
    assert f'/console/deliveries/renewals/{told.delivery_id}"' in unquote(unescape(house))
    assert "HTTP 400" in await ann.page(f"/console/dead-letters?{OUTBOX}")
    assert "Replay" in await ann.page(f"/console/deliveries/renewals/{quote(told.delivery_id, safe='')}")
    assert told.event_id in await ann.page(f"/console/deliveries?{OUTBOX}&status=dlq")
    assert "Score over runs" in await ann.page(f"{ROOT}/residents/{first.resident_id}")
    assert "would change their tier" in await ann.page(f"{HOUSE}/what-if")


async def test_what_waits_for_an_rms_that_is_paused_is_counted_with_the_reason(
    harness: ConsoleHarness,
) -> None:
    house = scene.PROPERTIES[0]
    await scene.settle(harness.runtime, residents=8)
    await scene.calculate(harness.runtime)
    async with RmsSimulator(clock=SystemClock()) as rms:
        await scene.connect(harness.runtime, rms)
        await scene.pause(harness.runtime, house, reason="maintenance")
        told = await scene.trigger(harness.runtime, house)
    assert told
    ann = await harness.signed_in("ann")
    assert f">{len(told)}</a>" in await ann.page(ROOT)
    page = await ann.page(HOUSE)
    assert "maintenance. Events wait until it is resumed." in page
    assert f'Deliveries <span class="count">{len(told)}</span>' in page


WRONG: Final = (
    ("/properties/nowhere", 404, "no property 'nowhere'"),
    ("/properties/nowhere/what-if", 404, "no property 'nowhere'"),
    ("/properties/nowhere/rules", 404, "no property 'nowhere'"),
    ("/residents/nobody", 404, "no resident 'nobody'"),
    ("/residents/__x__", 404, "no resident '__x__'"),
    ("/properties/__x__", 404, "no property '__x__'"),
    ("/calibration?property=nowhere", 404, "no property 'nowhere'"),
    ("/properties/property-0001?tier=purple", 422, "tier is one of"),
    ("/properties/property-0001?run=run-lost", 404, "choose one of its runs, or leave `run` out"),
    ("/properties/property-0001?run=%2F..%2F", 404, "no finished run '/../' of property 'property-0001'"),
    ("/properties/property-0002?run=run-lost", 404, "no property 'property-0002'"),
    ("/properties/nowhere/runs", 404, "no property 'nowhere'"),
    ("/properties/property-0001?sort=name", 422, "sort is one of"),
    ("/properties/property-0001?cursor=rubbish", 400, "cursor"),
    ("/properties/property-0001/what-if?expiry=lots", 422, "expiry is a whole number from 0 to 100"),
    ("/properties/property-0001/what-if?high=20&medium=60", 200, "Medium begins at or below high."),
    ("/properties/property-0001?q=%00%F0%9F%8F%A0%22%3C", 200, "Nobody here is called that."),
    ("/properties/property-0001?q=..", 200, "Nobody here is called that."),
    ("/properties/property-0001?q=" + "x" * 300, 422, "q takes at most 200 characters"),
)


async def test_what_is_asked_wrongly_is_answered_with_a_page_that_says_so(harness: ConsoleHarness) -> None:
    await scene.settle(harness.runtime, residents=5)
    await scene.calculate(harness.runtime)
    ann = await harness.signed_in("ann")
    for path, status, said in WRONG:
        assert said in unescape(await ann.page(f"{ROOT}{path}", status)), path


async def test_pages_of_another_tenant_show_nothing_of_this_one(harness: ConsoleHarness) -> None:
    await scene.settle(harness.runtime, residents=5)
    await scene.calculate(harness.runtime)
    eve = await harness.signed_in("eve", role="owner", tenant_id="acme")
    assert "No properties yet." in await eve.page(ROOT)
    await eve.page(HOUSE, 404)
    await eve.page(f"{ROOT}/residents/resident-0000001", 404)
    status, _, _ = await eve.ask("GET", "/renewals/api/v1/properties/property-0001/renewal-risk.csv")
    assert status == 404


async def test_a_failed_calculation_says_why_above_the_run_before_it(harness: ConsoleHarness) -> None:
    await scene.settle(harness.runtime, residents=5)
    await scene.calculate(harness.runtime)
    store, jobs = harness.runtime.store.tenant("-"), scene.renewals_of(harness.runtime).jobs("-")
    found = await store.get(Property, scene.PROPERTIES[0])
    assert found is not None
    await store.commit(put(msgspec.structs.replace(found.doc, time_zone="Nowhere/Land"), found.unchanged))
    job = await jobs.start(scene.PROPERTIES[0], as_of=harness.runtime.clock.now().date())
    assert (await jobs.wait(job.id, within_s=20)).status == "failed"
    ann = await harness.signed_in("ann", role="viewer")
    house = unescape(await ann.page(HOUSE))
    assert "failed: " in house
    assert "Nowhere/Land" in house
    assert house.count("Scores of the last") == 0
    assert '5</span> <span class="said">residents' in house
    assert "failed</span>" in await ann.page(ROOT)


async def test_a_portfolio_of_many_properties_goes_on_by_name(harness: ConsoleHarness) -> None:
    await scene.settle(harness.runtime, residents=27, per_property=1)
    ann = await harness.signed_in("ann", role="viewer")
    first = await ann.page(ROOT)
    more = re.search(r'href="([^"]+)" rel="next"', first)
    assert more is not None
    second = await ann.page(unescape(more[1]))
    assert (first.count("<tr data-key"), second.count("<tr data-key")) == (25, 2)
    # Sums of a part would be taken for those of the whole.
    assert "residents at high risk" not in first + second


async def test_an_event_is_shown_also_when_its_property_is_gone(harness: ConsoleHarness) -> None:
    house = scene.PROPERTIES[0]
    await scene.settle(harness.runtime, residents=8)
    await scene.calculate(harness.runtime)
    async with RmsSimulator(clock=SystemClock()) as rms:
        rms.run(Behave(failure_rate=1.0, failure_status=400))
        await scene.connect(harness.runtime, rms)
        told = (await scene.trigger(harness.runtime, house))[0]
        await scene.settled(harness.runtime, house, status="dlq", count=1)
    await harness.runtime.store.tenant("-").commit(delete(Property, house))
    ann = await harness.signed_in("ann")
    assert told.event_id in await ann.page("/console/dead-letters?outbox=renewals")
    assert told.event_id in await ann.page(f"/console/deliveries/renewals/{quote(told.delivery_id, safe='')}")


async def test_a_property_beyond_the_first_hundreds_is_named_and_stays_chosen(
    harness: ConsoleHarness,
) -> None:
    store, last = harness.runtime.store.tenant("-"), "p-zzz"
    await store.commit(*(create(Property(id=f"p-{n:03}", name=f"House {n:03}")) for n in range(210)))
    await settle_in(store, property_id=last)
    await store.commit(patch(Property, last, changes={"name": "Zenith Court"}))
    ann = await harness.signed_in("ann")
    shown = await ann.page(f"{ROOT}/calibration?property={last}")
    assert f'<option value="{last}" selected>Zenith Court</option>' in shown


async def test_the_portfolio_says_how_old_its_data_is_and_what_went_wrong(
    harness: ConsoleHarness, tmp_path: Path
) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "properties.csv").write_text("id,name\np1,Elm Court\n,Nowhere\n")
    await scene.renewals_of(harness.runtime).import_tables(scene.operator(harness.runtime), Folder(folder))
    ann = await harness.signed_in("ann")
    page = await ann.page(ROOT)
    assert "Elm Court" in page
    assert re.search(r"<p class=.hint.>Data of .*, from .*; 1 row set aside", page)
    failed = patch(SourceState, "-", changes={"error": "the server is away"})
    await harness.runtime.store.tenant("-").commit(failed)
    assert "The last refresh failed: the server is away." in await ann.page(ROOT)
