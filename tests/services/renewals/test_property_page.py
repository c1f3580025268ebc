"""The page of a property: whom it lists, in which order, by which run; and the file it gives away."""

from __future__ import annotations

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

from holdfast.services.renewals import service
from holdfast.services.renewals.domain.scoring import Thresholds
from holdfast.services.renewals.models import Property, PropertyRules, Resident
from holdfast.services.renewals.queries.csv_export import plain
from holdfast.services.renewals.queries.resident_search import find_residents
from holdfast.store import put
from tests.browser import renewals_fixtures as scene
from tests.console.console_harness import ConsoleHarness, console
from tests.services.renewals.server import settle_in

ROOT: Final = "/console/renewals"
HOUSE: Final = f"{ROOT}/properties/{scene.PROPERTIES[0]}"


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[service], work=True) as made:
        yield made


async def test_a_list_goes_on_where_its_page_ended(harness: ConsoleHarness) -> None:
    await scene.settle(harness.runtime, residents=70)
    await scene.calculate(harness.runtime)
    ann, seen = await harness.signed_in("ann", role="viewer"), list[str]()
    path: str | None = HOUSE
    while path is not None:
        text = await ann.page(path)
        rows = text.partition('id="rows"')[2]
        seen += re.findall(r'<tr data-key="([^"]+)"', rows)
        more = re.search(r'href="([^"]+)" rel="next"', rows)
        path = unescape(more[1]) if more else None
    assert len(seen) == len(set(seen)) == 70


async def test_who_gave_notice_stands_first_and_is_listed_with_the_same_trend(
    harness: ConsoleHarness,
) -> None:
    await scene.settle(harness.runtime, residents=8)
    store = harness.runtime.store.tenant("-")
    found = await store.get(Resident, "resident-0000004")
    assert found is not None
    await store.commit(put(msgspec.structs.replace(found.doc, status="notice_given"), found.unchanged))
    for months_back in (2, 1, 0):
        await scene.calculate(harness.runtime, months_back=months_back)
    house = await (await harness.signed_in("ann", role="viewer")).page(HOUSE)
    notices, _, rows = house.partition('id="notices"')[2].partition('id="rows"')
    assert notices.count('<tr data-key="resident-0000004"') == 1
    assert rows.count('<tr data-key="resident-0000004"') == 1
    assert rows.count("<tr data-key") == 8
    assert set(re.findall(r"Scores of the last (\d+) runs", house)) == {"3"}


async def test_what_is_found_is_sorted_like_what_is_listed(harness: ConsoleHarness) -> None:
    await scene.settle(harness.runtime, residents=30)
    await scene.rename(harness.runtime, "Kim")
    ann = await harness.signed_in("ann", role="viewer")
    for sort in ("score", "days"):
        listed, found = await ann.page(f"{HOUSE}?sort={sort}"), await ann.page(f"{HOUSE}?q=kim&sort={sort}")
        column = r'class="score">(\d+)' if sort == "score" else r'class="days"[^>]*>(.*)</td>'
        rows = [re.findall(column, text.partition('id="rows"')[2]) for text in (listed, found)]
        assert rows[0] == rows[1]
        assert len(rows[0]) == 30


async def test_an_earlier_run_is_shown_with_the_tiers_of_its_day_beside_the_latest(
    harness: ConsoleHarness,
) -> None:
    await scene.settle(harness.runtime, residents=40)
    store, house = harness.runtime.store.tenant("-"), scene.PROPERTIES[0]
    found = await store.get(Property, house)
    assert found is not None
    await store.commit(put(msgspec.structs.replace(found.doc, time_zone="Asia/Tokyo"), found.unchanged))
    await scene.calculate(harness.runtime, months_back=3)
    strict = PropertyRules(
        property_id=house, thresholds=Thresholds(high=1, medium=0), updated_at=harness.runtime.clock.now()
    )
    await store.commit(put(strict))
    await scene.calculate(harness.runtime)
    portfolio = scene.renewals_of(harness.runtime).portfolio("-")
    (latest, older), _ = await portfolio.runs.all(house)
    assert latest.high == latest.total_residents
    assert 0 < older.high < older.total_residents
    ann = await harness.signed_in("ann")
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


async def test_the_runs_of_a_property_go_on_where_their_page_ended(harness: ConsoleHarness) -> None:
    await scene.settle(harness.runtime, residents=1)
    for _ in range(32):
        await scene.calculate(harness.runtime)
    ann = await harness.signed_in("ann", role="viewer")
    first = await ann.page(f"{HOUSE}/runs")
    more = re.search(r'href="([^"]+)" rel="next"', first)
    assert more is not None
    second = await ann.page(unescape(more[1]))
    ids = [*_keys(first), *_keys(second)]
    assert (len(ids), len(set(ids))) == (32, 32)
    # One that is older than the choices is still among them once it is chosen.
    page = await ann.page(f"{HOUSE}?run={ids[-1]}")
    assert re.search(rf'<option value="{ids[-1]}" selected>', page)


async def test_residents_are_found_by_name_unit_or_id_in_their_property_alone(
    harness: ConsoleHarness,
) -> None:
    await scene.settle(harness.runtime, residents=40, per_property=20)
    store, house = harness.runtime.store.tenant("-"), scene.PROPERTIES[0]
    found = await store.get(Resident, "resident-0000003")
    assert found is not None
    named = msgspec.structs.replace(found.doc, first_name="Zoë", last_name="van Dyke")
    await store.commit(put(named, found.unchanged))
    for words in ("van D", "VAN dyke", "zoë van", "  resident-0000003 ", "103"):
        assert "resident-0000003" in await find_residents(store, house, words), words
    for words in ("", "resident-0000023", "123", "yke", "\x00", "__x__", "a/b"):
        assert await find_residents(store, house, words) == [], words


async def test_a_spreadsheet_gets_every_score_and_runs_no_formula(harness: ConsoleHarness) -> None:
    await scene.settle(harness.runtime, residents=30)
    await scene.rename(harness.runtime, '=HYPERLINK("https://evil.example")')
    ann = await harness.signed_in("ann", role="viewer")
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
    await scene.calculate(harness.runtime, months_back=2)
    (_, older), _ = await scene.renewals_of(harness.runtime).portfolio("-").runs.all(scene.PROPERTIES[0])
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


async def test_a_resident_with_more_events_than_are_shown_leads_to_all_of_them(
    harness: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.services.renewals.views.calibration.EVENTS", 2)
    await scene.settle(harness.runtime, residents=10)
    renewals, house = scene.renewals_of(harness.runtime), scene.PROPERTIES[0]
    await scene.create_endpoint(harness.runtime, house)
    ann, page, flagged = await harness.signed_in("ann", role="viewer"), "", ""
    for told in (1, 2, 3):
        await scene.calculate(harness.runtime)
        portfolio = renewals.portfolio("-")
        run = await portfolio.runs.latest(house)
        assert run is not None
        flagged = flagged or (await portfolio.risk(run, house, limit=1)).docs[0].resident_id
        await renewals.trigger(scene.operator(harness.runtime), house, flagged)
        page = (await ann.page(f"{ROOT}/residents/{flagged}")).partition('id="events"')[2]
        assert page.count("<tr data-key") == min(told, 2)
        assert ("Only the newest 2 are shown" in page) == (told == 3)
    assert f"/console/deliveries?outbox=renewals&endpoint={house}" in unescape(page)


@pytest.mark.parametrize("page", ["", "/what-if"])
async def test_the_forms_of_a_property_lead_back_to_it_whatever_its_id(
    harness: ConsoleHarness, page: str
) -> None:
    id = "block #7? 50%"
    store = harness.runtime.store.tenant("-")
    await settle_in(store, property_id=id)
    await scene.calculate(harness.runtime, id)
    ann = await harness.signed_in("ann", role="owner")
    text = await ann.page(f"{ROOT}/properties/{quote(id, safe='')}{page}")
    actions = re.findall(
        r'<form class="(?:filters|weights|tenant-choice)" method="get" action="([^"]+)"', text
    )
    assert len(actions) == 2
    for action in actions:
        assert "House block #7? 50%" in await ann.page(f"{unescape(action)}?sort=days")


async def test_a_property_whose_runs_send_by_themselves_says_so_before_one_is_begun(
    harness: ConsoleHarness,
) -> None:
    await scene.settle(harness.runtime, residents=5)
    await scene.calculate(harness.runtime)
    ann, store = await harness.signed_in("ann", role="developer"), harness.runtime.store.tenant("-")
    assert "those at high risk" not in await ann.page(HOUSE)
    rules = PropertyRules(property_id=scene.PROPERTIES[0], send="high", updated_at=store.clock.now())
    await store.commit(put(rules))
    assert "those at high risk" not in await ann.page(HOUSE), "there is no RMS yet"
    await scene.create_endpoint(harness.runtime, scene.PROPERTIES[0])
    page = await ann.page(HOUSE)
    assert "Every run sends those at high risk to the RMS" in page
    assert 'data-text="The run sends those at high risk to the RMS' in page
