"""What the pages answer on every engine, to wrong questions, and to whom."""

from __future__ import annotations

import asyncio
import csv
import re
from collections.abc import AsyncIterator
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import quote
from zoneinfo import ZoneInfo

import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.services.renewals import service
from holdfast.services.renewals.exporting import plain
from holdfast.services.renewals.feeding.sources import Folder
from holdfast.services.renewals.finding import find_residents
from holdfast.services.renewals.models import Property, PropertyRules, Resident, SourceState
from holdfast.services.renewals.scoring import Thresholds
from holdfast.simulators.rms import Behave, RmsSimulator
from holdfast.store import patch, put
from tests.browser import renewals_scene as scene
from tests.console.bed import Bed, console

ROOT: Final = "/console/renewals"
HOUSE: Final = f"{ROOT}/properties/{scene.PROPERTIES[0]}"


@pytest.fixture
async def bed(tmp_path: Path) -> AsyncIterator[Bed]:
    async with console(tmp_path, services=[service], work=True) as made:
        yield made


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_every_page_shows_what_there_is_on_every_engine(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    async with (
        RmsSimulator(clock=SystemClock()) as rms,
        console(tmp_path, store=url, services=[service], work=True) as bed,
    ):
        ann = await bed.signed_in("ann")
        assert "No properties yet." in await ann.page(ROOT)
        assert "No dead letters." in await ann.page(f"{ROOT}/dead-letters")
        assert "Nothing waits to be sent." in await ann.page(f"{ROOT}/deliveries")
        assert "No outcomes yet." in await ann.page(f"{ROOT}/calibration")
        await scene.settle(bed.runtime, residents=12, per_property=6)
        assert "not calculated yet" in await ann.page(HOUSE)
        assert "not calculated yet" in await ann.page(f"{HOUSE}/what-if")
        assert "not calculated yet" in await ann.page(f"{HOUSE}/runs")
        assert "Nothing was sent yet." in await ann.page(f"{HOUSE}/deliveries")
        for months_back in (1, 0):
            await scene.calculate(bed.runtime, months_back=months_back)
        rms.run(Behave(failure_rate=1.0, failure_status=400))
        await scene.connect(bed.runtime, rms)
        await _shown(bed)


async def _shown(bed: Bed) -> None:
    ann, portfolio = await bed.signed_in("ben"), scene.renewals_of(bed.runtime).portfolio("-")
    run = await portfolio.latest(scene.PROPERTIES[0])
    assert run is not None
    (first,) = (await portfolio.risk(run, scene.PROPERTIES[0], limit=1)).docs
    told = await portfolio.trigger(scene.PROPERTIES[0], first.resident_id)
    await scene.settled(bed.runtime, scene.PROPERTIES[0], status="dlq", count=1)
    assert "1 dead letter of renewals" in await ann.page("/console")
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
    assert "HTTP 400" in await ann.page(f"{ROOT}/dead-letters?property={scene.PROPERTIES[0]}")
    assert "Replay" in await ann.page(f"{ROOT}/deliveries/{told.delivery_id}")
    assert "given up" in await ann.page(f"{HOUSE}/deliveries?status=dlq")
    assert first.name in unescape(await ann.page(f"{ROOT}/deliveries?q={quote(told.event_id)}"))
    assert "Nothing is due." in await ann.page(f"{ROOT}/deliveries?waiting=due")
    assert "Score over runs" in await ann.page(f"{ROOT}/residents/{first.resident_id}")
    assert "would change their tier" in await ann.page(f"{HOUSE}/what-if")


async def test_what_waits_for_an_rms_that_is_paused_says_so_in_every_list(bed: Bed) -> None:
    renewals, house = scene.renewals_of(bed.runtime), scene.PROPERTIES[0]
    await scene.settle(bed.runtime, residents=8)
    await scene.calculate(bed.runtime)
    async with RmsSimulator(clock=SystemClock()) as rms:
        await scene.connect(bed.runtime, rms)
        await renewals.endpoints("-").act(house, "pause", reason="maintenance", by="ann")
        told = await renewals.portfolio("-").trigger_many(house)
    assert told
    ann = await bed.signed_in("ann")
    # A dispatcher may take them to see where they go, and gives them back.
    async with asyncio.timeout(20):
        for path in (f"{ROOT}/deliveries", f"{HOUSE}/deliveries?status=pending"):
            while (await ann.page(path)).count(">waits</span>") != len(told):  # noqa: ASYNC110
                await asyncio.sleep(0.02)


WRONG: Final = (
    ("/properties/nowhere", 404, "no property 'nowhere'"),
    ("/properties/nowhere/what-if", 404, "no property 'nowhere'"),
    ("/properties/nowhere/deliveries", 404, "no property 'nowhere'"),
    ("/residents/nobody", 404, "There is no resident 'nobody' here."),
    ("/deliveries/nothing~there", 404, "no delivery 'nothing~there'"),
    ("/dead-letters?property=nowhere", 404, "no property 'nowhere'"),
    ("/calibration?property=nowhere", 404, "no property 'nowhere'"),
    ("/properties/property-0001?tier=purple", 422, "tier is one of"),
    ("/properties/property-0001?run=run-lost", 404, "choose one of its runs, or leave `run` out"),
    ("/properties/property-0001?run=%2F..%2F", 404, "no finished run '/../' of property 'property-0001'"),
    ("/properties/property-0002?run=run-lost", 404, "no property 'property-0002'"),
    ("/properties/nowhere/runs", 404, "no property 'nowhere'"),
    ("/properties/property-0001?sort=name", 422, "sort is one of"),
    ("/properties/property-0001?cursor=rubbish", 400, "cursor"),
    ("/properties/property-0001/deliveries?status=lost", 422, "status is one of"),
    ("/deliveries?waiting=always", 422, "waiting is one of"),
    ("/deliveries?cursor=rubbish", 400, "cursor"),
    ("/deliveries?q=evt-lost", 200, "No event has this id."),
    ("/properties/property-0001/what-if?expiry=lots", 422, "expiry is a whole number from 0 to 100"),
    ("/properties/property-0001/what-if?high=20&medium=60", 200, "Medium begins at or below high."),
    ("/properties/property-0001?q=%00%F0%9F%8F%A0%22%3C", 200, "Nobody here is called that."),
    ("/properties/property-0001?q=..", 200, "Nobody here is called that."),
    ("/properties/property-0001?q=" + "x" * 300, 422, "q takes at most 200 characters"),
)


async def test_what_is_asked_wrongly_is_answered_with_a_page_that_says_so(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=5)
    await scene.calculate(bed.runtime)
    ann = await bed.signed_in("ann")
    for path, status, said in WRONG:
        assert said in unescape(await ann.page(f"{ROOT}{path}", status)), path


async def test_pages_of_another_tenant_show_nothing_of_this_one(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=5)
    await scene.calculate(bed.runtime)
    eve = await bed.signed_in("eve", role="owner", tenant_id="acme")
    assert "No properties yet." in await eve.page(ROOT)
    await eve.page(HOUSE, 404)
    await eve.page(f"{ROOT}/residents/resident-0000001", 404)
    status, _, _ = await eve.ask("GET", "/renewals/api/v1/properties/property-0001/renewal-risk.csv")
    assert status == 404


async def test_a_failed_calculation_says_why_above_the_run_before_it(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=5)
    await scene.calculate(bed.runtime)
    store, jobs = bed.runtime.store.tenant("-"), scene.renewals_of(bed.runtime).portfolio("-").jobs
    found = await store.get(Property, scene.PROPERTIES[0])
    assert found is not None
    await store.commit(put(msgspec.structs.replace(found.doc, time_zone="Nowhere/Land"), found.unchanged))
    job = await jobs.start(scene.PROPERTIES[0], as_of=bed.runtime.clock.now().date())
    assert (await jobs.ended(job.id, within_s=20)).status == "failed"
    ann = await bed.signed_in("ann", role="viewer")
    house = unescape(await ann.page(HOUSE))
    assert "failed: " in house
    assert "Nowhere/Land" in house
    assert house.count("Scores of the last") == 0
    assert '5</span> <span class="said">residents' in house
    assert "failed</span>" in await ann.page(ROOT)


async def test_a_list_goes_on_where_its_page_ended(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=70)
    await scene.calculate(bed.runtime)
    ann, seen = await bed.signed_in("ann", role="viewer"), list[str]()
    path: str | None = HOUSE
    while path is not None:
        text = await ann.page(path)
        rows = text.partition('id="rows"')[2]
        seen += re.findall(r'<tr data-key="([^"]+)"', rows)
        more = re.search(r'href="([^"]+)" rel="next"', rows)
        path = unescape(more[1]) if more else None
    assert len(seen) == len(set(seen)) == 70


async def test_who_gave_notice_stands_first_and_is_listed_with_the_same_trend(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=8)
    store = bed.runtime.store.tenant("-")
    found = await store.get(Resident, "resident-0000004")
    assert found is not None
    await store.commit(put(msgspec.structs.replace(found.doc, status="notice_given"), found.unchanged))
    for months_back in (2, 1, 0):
        await scene.calculate(bed.runtime, months_back=months_back)
    house = await (await bed.signed_in("ann", role="viewer")).page(HOUSE)
    notices, _, rows = house.partition('id="notices"')[2].partition('id="rows"')
    assert notices.count('<tr data-key="resident-0000004"') == 1
    assert rows.count('<tr data-key="resident-0000004"') == 1
    assert rows.count("<tr data-key") == 8
    assert set(re.findall(r"Scores of the last (\d+) runs", house)) == {"3"}


async def test_what_is_found_is_sorted_like_what_is_listed(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=30)
    await scene.rename(bed.runtime, "Kim")
    ann = await bed.signed_in("ann", role="viewer")
    for sort in ("score", "days"):
        listed, found = await ann.page(f"{HOUSE}?sort={sort}"), await ann.page(f"{HOUSE}?q=kim&sort={sort}")
        column = r'class="score">(\d+)' if sort == "score" else r'class="days"[^>]*>(.*)</td>'
        rows = [re.findall(column, text.partition('id="rows"')[2]) for text in (listed, found)]
        assert rows[0] == rows[1]
        assert len(rows[0]) == 30


async def test_an_earlier_run_is_shown_with_the_tiers_of_its_day_beside_the_latest(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=40)
    store, house = bed.runtime.store.tenant("-"), scene.PROPERTIES[0]
    found = await store.get(Property, house)
    assert found is not None
    await store.commit(put(msgspec.structs.replace(found.doc, time_zone="Asia/Tokyo"), found.unchanged))
    await scene.calculate(bed.runtime, months_back=3)
    strict = PropertyRules(
        property_id=house, thresholds=Thresholds(high=1, medium=0), updated_at=bed.runtime.clock.now()
    )
    await store.commit(put(strict))
    await scene.calculate(bed.runtime)
    portfolio = scene.renewals_of(bed.runtime).portfolio("-")
    (latest, older), _ = await portfolio.runs.all(house)
    assert latest.high == latest.total_residents
    assert 0 < older.high < older.total_residents
    ann = await bed.signed_in("ann")
    page = await ann.page(f"{HOUSE}?run={older.job_id}&tier=high")
    rows = page.partition('id="rows"')[2]
    then = re.findall(r'class="risk" data-label="Risk"><b class="score">(\d+)</b> <span [^>]+>(\w+)<', rows)
    assert [int(score) for score, _ in then] == sorted((int(score) for score, _ in then), reverse=True)
    assert {tier for _, tier in then} == {"high"}
    assert len(then) == min(30, older.high)
    kept = {one.resident_id: one for one in await portfolio.scores_of(_keys(rows), older)}
    now = {one.resident_id: one for one in await portfolio.scores_of(_keys(rows), latest)}
    for id, part in zip(_keys(rows), rows.split("<tr data-key")[1:], strict=True):
        change = now[id].risk_score - kept[id].risk_score
        said = "as before" if change == 0 else f"{change:+d}".replace("-", "−")
        assert f"<small>{said}</small>" in part
        assert f'<b class="score">{now[id].risk_score}</b>' in part.partition('data-label="Now"')[2]
    at = older.calculated_at.astimezone(ZoneInfo("Asia/Tokyo"))
    assert f"calculated {at:%Y-%m-%d %H:%M} (Asia/Tokyo) as of {older.as_of_date}" in page
    assert f"high risk, now {latest.high}" in page
    assert 'data-act="/renewals' not in page.partition('id="toolbar"')[2]
    assert f"renewal-risk.csv?tier=high&amp;run={older.job_id}" in page
    # The latest run's own id is the same page as no id: what is shared while it is new can be acted on.
    fresh = await ann.page(f"{HOUSE}?run={latest.job_id}")
    assert "An earlier run" not in fresh
    assert "Scores of the last 2 runs" in fresh
    assert "Scores of the last" not in rows


def _keys(rows: str) -> list[str]:
    return re.findall(r'<tr data-key="([^"]+)"', rows)


async def test_the_runs_of_a_property_go_on_where_their_page_ended(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=1)
    for _ in range(32):
        await scene.calculate(bed.runtime)
    ann = await bed.signed_in("ann", role="viewer")
    first = await ann.page(f"{HOUSE}/runs")
    more = re.search(r'href="([^"]+)" rel="next"', first)
    assert more is not None
    second = await ann.page(unescape(more[1]))
    ids = [*_keys(first), *_keys(second)]
    assert (len(ids), len(set(ids))) == (32, 32)
    # One that is older than the choices is still among them once it is chosen.
    page = await ann.page(f"{HOUSE}?run={ids[-1]}")
    assert re.search(rf'<option value="{ids[-1]}" selected>', page)


async def test_a_portfolio_of_many_properties_goes_on_by_name(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=27, per_property=1)
    ann = await bed.signed_in("ann", role="viewer")
    first = await ann.page(ROOT)
    more = re.search(r'href="([^"]+)" rel="next"', first)
    assert more is not None
    second = await ann.page(unescape(more[1]))
    assert (first.count("<tr data-key"), second.count("<tr data-key")) == (25, 2)
    # Sums of a part would be taken for those of the whole.
    assert "residents at high risk" not in first + second


async def test_residents_are_found_by_name_unit_or_id_in_their_property_alone(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=40, per_property=20)
    store, house = bed.runtime.store.tenant("-"), scene.PROPERTIES[0]
    found = await store.get(Resident, "resident-0000003")
    assert found is not None
    named = msgspec.structs.replace(found.doc, first_name="Zoë", last_name="van Dyke")
    await store.commit(put(named, found.unchanged))
    for words in ("van D", "VAN dyke", "zoë van", "  resident-0000003 ", "103"):
        assert "resident-0000003" in await find_residents(store, house, words), words
    for words in ("", "resident-0000023", "123", "yke", "\x00", "__x__", "a/b"):
        assert await find_residents(store, house, words) == [], words


async def test_a_spreadsheet_gets_every_score_and_runs_no_formula(bed: Bed) -> None:
    await scene.settle(bed.runtime, residents=30)
    await scene.rename(bed.runtime, '=HYPERLINK("https://evil.example")')
    ann = await bed.signed_in("ann", role="viewer")
    path = f"/renewals/api/v1/properties/{scene.PROPERTIES[0]}/renewal-risk.csv"
    status, text, headers = await ann.ask("GET", path)
    assert status == 200
    assert headers["content-type"] == "text/csv; charset=utf-8"
    assert re.fullmatch(r'attachment; filename="renewal-risk-[a-z0-9_.-]+"', headers["content-disposition"])
    rows = list(csv.DictReader(text.splitlines()))
    assert len(rows) == 30
    assert {row["name"] for row in rows} == {'\'=HYPERLINK("https://evil.example")'}
    points = [name for name in rows[0] if name.endswith("_points")]
    assert all(sum(int(row[name]) for name in points) == int(row["risk_score"]) for row in rows)
    await scene.calculate(bed.runtime, months_back=2)
    (_, older), _ = await scene.renewals_of(bed.runtime).portfolio("-").runs.all(scene.PROPERTIES[0])
    for chosen in (f"run={older.job_id}", f"asOf={older.as_of_date}"):
        _, old, headers = await ann.ask("GET", f"{path}?{chosen}")
        assert old == text
        assert f"{older.as_of_date}.csv" in headers["content-disposition"]
    assert (await ann.ask("GET", f"{path}?run=run-lost"))[0] == 404
    status, _, _ = await ann.ask("GET", f"{path}?tier=purple")
    assert status in (400, 422)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_text_that_could_begin_a_formula_is_quoted(start: str) -> None:
    assert plain(f"{start}1+1") == f"'{start}1+1"
    assert plain(f"a{start}") == f"a{start}"


async def test_the_portfolio_says_how_old_its_data_is_and_what_went_wrong(bed: Bed, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "properties.csv").write_text("id,name\np1,Elm Court\n,Nowhere\n")
    renewals = scene.renewals_of(bed.runtime)
    await renewals.importer("-", Folder(folder)).run()
    ann = await bed.signed_in("ann")
    page = await ann.page(ROOT)
    assert "Elm Court" in page
    assert re.search(r"<p class=.hint.>Data of .*, from .*; 1 row set aside", page)
    failed = patch(SourceState, "-", changes={"error": "the server is away"})
    await bed.runtime.store.tenant("-").commit(failed)
    assert "The last refresh failed: the server is away." in await ann.page(ROOT)
