"""The overview's charts, figures and notices, over HTTP."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from html import unescape
from pathlib import Path

import pytest

from holdfast.console.plots import Series, chart
from holdfast.kit.activity import ActivityHour, ActivityMinute
from holdfast.kit.outbox import Delivery
from holdfast.kit.runs import RunDocument
from holdfast.service import Context, Notice, Parts, Service
from holdfast.store import create, patch, put
from tests.console.console_harness import ConsoleHarness, console
from tests.console.workshop import Order, Workshop


def _signalman() -> Service:
    """A service that has something to tell of each tenant but the platform."""

    async def attention(tenant_id: str) -> list[Notice]:
        notice = Notice(tone="warn", text="the lamp is out", path="/console/runs", tenant_id=tenant_id)
        return [] if tenant_id == "-" else [notice]

    def build(context: Context) -> Parts:
        return Parts(attention=attention)

    return Service(name="signalman", summary="Watches lamps.", documents=(), build=build)


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[Workshop().service(works=False), _signalman()]) as made:
        yield made


def _charts(text: str) -> dict[str, str]:
    charts = re.findall(r'<svg class="chart".*?</svg></svg>', text, re.DOTALL)
    return {match[1]: one for one in charts if (match := re.search(r'<title id="chart-(\w+)-title">', one))}


def _titles(drawn: str) -> list[str]:
    return re.findall(r"<g><title>([^<]+)</title>", drawn)


async def _record(harness: ConsoleHarness) -> datetime:
    """One busy minute, half an hour ago, which is returned, and two busy hours, 5 hours and 5 days ago."""
    now = harness.runtime.clock.now()
    minute = ActivityMinute.start(now - timedelta(minutes=30))
    writes = [put(ActivityMinute(id=minute.strftime("%Y%m%d%H%M"), at=minute, delivered=7, waited_s=2.5))]
    for back, failed in ((timedelta(hours=5), 11), (timedelta(days=5), 100)):
        hour = ActivityHour.start(now - back)
        writes.append(put(ActivityHour(id=hour.strftime("%Y%m%d%H"), at=hour, failed=failed, handled=3)))
    await harness.runtime.store.tenant("-").commit(*writes)
    return minute


async def test_ranges_are_links_and_each_shows_its_own_steps(harness: ConsoleHarness) -> None:
    await _record(harness)
    ann = await harness.signed_in("ann")
    first = await ann.page("/console")
    for name, steps, step, sums in (
        ("1h", 60, "minute", ("7 delivered", "0 failed")),
        ("24h", 24, "hour", ("0 delivered", "11 failed")),
        ("7d", 168, "hour", ("0 delivered", "111 failed")),
    ):
        assert f'href="/console?range={name}"' in first
        shown = await ann.page(f"/console?range={name}")
        assert f'<a href="/console?range={name}" aria-current="true">' in shown
        for drawn in _charts(shown).values():
            assert len(_titles(drawn)) == steps
            assert f"by {step}, the last" in drawn
        assert all(one in shown for one in sums)
    assert _charts(first).keys() == {"deliveries", "messages", "wait"}
    assert len(_titles(_charts(first)["wait"])) == 60


async def test_an_unknown_range_is_refused_with_the_known_ones(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    assert "range is one of 1h, 24h, 7d" in await ann.page("/console?range=2y", 422)


async def test_charts_have_axes_a_title_a_description_and_a_table(harness: ConsoleHarness) -> None:
    await _record(harness)
    shown = await (await harness.signed_in("ann")).page("/console?range=7d")
    drawn = _charts(shown)["deliveries"]
    assert "Delivery attempts by hour, the last 7 days, in UTC</title>" in drawn
    assert re.search(
        r'<desc id="chart-deliveries-about">Highest: 100, at \d\d \w{3} \d\d:00 UTC\.</desc>', drawn
    )
    assert re.findall(r'<text class="value"[^>]*>([^<]+)<', drawn) == ["0", "50", "100"]
    ticks = re.findall(r'<text class="tick[^>]*>([^<]+)<', drawn)
    assert len(ticks) == 8
    assert all(re.fullmatch(r"\d\d \w{3}", one) for one in ticks)
    table = shown.partition("<details")[2].partition("</details>")[0]
    rows = re.findall(r"<tr data-key.*?</tr>", table)
    assert [re.findall(r"<td[^>]*>(\d+)</td>", row)[1] for row in rows] == ["11", "100"]
    links = [set(re.findall(r'href="([^"]+)"', one)) for one in (table, "".join(_charts(shown).values()))]
    assert len(links[0]) == 3
    assert links[0] < links[1], "where a bar leads, a row does, which the keyboard reaches"
    assert "Hour (UTC)" in table


async def test_a_bar_and_its_row_lead_to_the_deliveries_created_then(harness: ConsoleHarness) -> None:
    start, minute = await _record(harness), timedelta(minutes=1)
    store = harness.runtime.store.tenant("acme")
    for name, at in (("early", start - minute / 60), ("within", start), ("late", start + minute)):
        await store.commit(create(Delivery(
            id=f"{name}~rms", tenant_id="acme", event_id=name, endpoint_id="rms", event_type="lamp.lit",
            body=b"{}", occurred_at=at, created_at=at,
        )))  # fmt: skip
    ann = await harness.signed_in("ann")
    shown = await ann.page("/console")
    bars = re.findall(r'<a href="([^"]+)" tabindex="-1"><g><title>([^<]+)<', _charts(shown)["deliveries"])
    [link] = [link for link, title in bars if "delivered 7" in title]
    assert f'<a href="{link}">{start:%H:%M}</a>' in shown.partition("<details")[2]
    listed = await ann.page(unescape(link))
    assert re.findall(r'<tr data-key="([^"]+)"', listed) == ["within~rms"]
    assert f"Created from {start:%d %b %Y %H:%M} to" in listed
    # Another state of the list stays within the time.
    assert all("since=" in one for one in re.findall(r'<a href="([^"]+)"[^>]*>pending</a>', listed))
    assert "since is a time such as" in await ann.page("/console/deliveries?since=yesterday", 422)


async def test_who_may_not_see_the_inbox_gets_no_link_to_it(harness: ConsoleHarness) -> None:
    vic = await harness.signed_in("vic", role="viewer")
    drawn = _charts(await vic.page("/console"))
    assert "<a " not in drawn["messages"]
    assert "<a " in drawn["deliveries"]
    ann = await harness.signed_in("ann")
    assert "/console/inbox?status=done" in _charts(await ann.page("/console"))["messages"]
    await _record(harness)
    vics, anns = [await one.page("/console?range=24h") for one in (vic, ann)]
    assert "/console/inbox" not in vics.partition("<details")[2].partition("</details>")[0]
    assert "/console/inbox?status=done" in anns.partition("<details")[2].partition("</details>")[0]


async def test_runs_of_every_collection_and_tenant_are_counted_and_lead_to_their_list(
    harness: ConsoleHarness,
) -> None:
    store, now = harness.runtime.store, harness.runtime.clock.now()
    for kind, tenant_id, id, age_h, end in (
        (RunDocument, "-", "run-a", 0, "running"),
        (Order, "acme", "run-b", 0, "running"),
        (Order, "acme", "run-c", 0, "running"),
        (Order, "other", "run-d", 0, "pending"),
        (RunDocument, "acme", "run-e", 1, "failed"),
        (Order, "acme", "run-f", 30, "failed"),
    ):
        at = now - timedelta(hours=age_h)
        await store.tenant(tenant_id).commit(
            create(kind(id=id, tenant_id=tenant_id, type="chair", created_at=at, updated_at=at))
        )
        for status in {"running": ["running"], "failed": ["running", "failed"]}.get(end, []):
            await store.tenant(tenant_id).commit(patch(kind, id, changes={"status": status}))
    ann = await harness.signed_in("ann")

    async def figures(path: str) -> dict[str, tuple[str, str]]:
        found = re.findall(
            r'<p class="value"><a href="([^"]+)">(\d+)</a></p>\s*<p class="said">([^<]+)</p>',
            await ann.page(path),
        )
        return {said: (count, unescape(link)) for link, count, said in found}

    whole = await figures("/console")
    assert whole["runs in progress"][0] == "3"
    assert whole["run waiting to start"][0] == "1"
    assert whole["failed run, created in the last 24 hours"][0] == "1"
    listed = await ann.page(whole["runs in progress"][1])
    assert set(re.findall(r'<tr data-key="([^"]+)"', listed)) == {"run-b", "run-c"}
    acme = await figures("/console?tenant=acme")
    assert acme["runs in progress"][0] == "2"
    assert acme["runs waiting to start"][0] == "0"


async def test_services_tell_of_every_known_tenant_on_the_overview_of_all(harness: ConsoleHarness) -> None:
    for tenant_id in ("acme", "other"):
        await harness.person(f"of-{tenant_id}", role="viewer", tenant_id=tenant_id)
    ann = await harness.signed_in("ann")
    shown = await ann.page("/console")
    for tenant_id in ("acme", "other"):
        assert f'<a href="/console/runs?tenant={tenant_id}">{tenant_id}: the lamp is out</a>' in shown
    alone = await ann.page("/console?tenant=acme")
    assert ">the lamp is out</a>" in alone
    assert "other: the lamp" not in alone


def test_a_chart_of_little_or_nothing_has_round_values_and_escapes_its_words() -> None:
    hostile = '"><script>'
    drawn = chart(
        [Series(hostile, "good", [0.5, 0])],
        [hostile, "b"],
        id="x",
        title=hostile,
        ticks=[hostile],
        links=[hostile, "/"],
    )
    assert "<script>" not in drawn
    assert "style=" not in drawn
    assert re.findall(r'class="value"[^>]*>([^<]+)<', drawn) == ["0", "1", "2"]
    for peak, high in (
        (0, "2"),
        (3, "4"),
        (10, "10"),
        (11, "20"),
        (4_001, "6,000"),
        (30_000, "40k"),
        (2_000_001, "4M"),
    ):
        shown = chart([Series("a", "good", [peak])], ["b"], id="x", title="t", ticks=["b"])
        assert re.findall(r'class="value"[^>]*>([^<]+)<', shown)[-1] == high
