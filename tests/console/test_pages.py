"""What the pages show to whom, and what they say when asked wrongly."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from html import unescape
from pathlib import Path

import pytest

from holdfast.kit.metering import Allowance
from holdfast.kit.outbox import DeadLetter, Deliveries, Endpoint
from holdfast.store import create, put
from tests.browser.scene import fill
from tests.console.console_harness import ConsoleHarness, console
from tests.examples import lanterns
from tests.examples.lanterns import Lantern

HOSTILE = "<script>alert(1)</script>\"><img src=x onerror=alert(2)>\u202ereversed'&amp;"
CONNECTION = "/connections/00000000000000000000000000000001"
ENDPOINT = "/endpoints/holdfast/crm-webhooks"
DOCUMENT = "/documents/holdfast_runs/document?id.id=run-003"
OWN_PAGES = (
    "", "/deliveries", "/deliveries?status=all", "/dead-letters", "/dead-letters?state=resolved",
    "/endpoints", "/endpoints?status=paused", ENDPOINT, "/inbox",
    "/inbox?status=parked", "/channels", "/connections",
    "/connections?status=connected", CONNECTION, "/runs", "/runs?status=failed",
    "/runs/holdfast_runs/run-003", "/schedules", "/schedules/-_prune", "/audit",
    "/audit?by=actor&value=user:ann", "/documents", "/documents/holdfast_deliveries", DOCUMENT, "/usage",
    "/users", "/you",
)  # fmt: skip
DIED_AT = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
ACT = re.compile(r'data-act="(/api/[^"]+)"')


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[lanterns.service]) as made:
        yield made


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_every_page_shows_what_there_is_on_every_engine(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    async with console(tmp_path, store=url) as harness:
        ann = await harness.signed_in("ann")
        await fill(harness.runtime, deliveries=40)
        shown = {path: await ann.page(f"/console{path}") for path in OWN_PAGES}
    assert "endpoint crm-webhooks is paused" in shown[""]
    assert "dead letters</a>" in shown[""]
    assert "lease." in shown["/deliveries"]
    assert "503 Service Unavailable, 8 times" in shown["/dead-letters"]
    assert "crm-webhooks" in shown["/endpoints?status=paused"]
    assert shown["/endpoints?status=paused"].count("<tr data-key") == 1
    assert "Send a test" in shown[ENDPOINT]
    assert "the repository is not known here yet" in shown["/inbox"]
    assert "person4@hoge.example" in shown["/channels"]
    assert shown["/connections"].count("<tr data-key") == 3
    assert "503: the service is currently unavailable" in shown[CONNECTION]
    assert "never-shown" not in shown[CONNECTION]
    assert shown["/runs"].count("<tr data-key") == 6
    assert shown["/runs?status=failed"].count("<tr data-key") == 1
    assert "502 from the model" in shown["/runs/holdfast_runs/run-003"]
    assert "ghp_never" not in shown["/runs/holdfast_runs/run-003"]
    assert "Run now" in shown["/schedules"]
    assert shown["/schedules/-_prune"].count("<tr data-key") == 3
    assert shown["/audit"].count("<tr data-key") >= 4
    assert shown["/audit?by=actor&value=user:ann"].count("<tr data-key") >= 2
    assert "holdfast_deliveries" in shown["/documents"]
    assert shown["/documents/holdfast_deliveries"].count("<tr data-key") == 40
    assert "502 from the model" in shown[DOCUMENT]
    assert "by day" in shown["/usage"]
    assert re.findall(r'aria-label="(\d+ of \d+)"', shown["/usage"]) == ["46 of 50", "3 of 10", "5 of 5"]
    assert re.findall(r">(ok|warning|reached)</span>", shown["/usage"]) == ["warning", "ok", "reached"]
    assert "owner" in shown["/users"]


async def test_every_page_has_words_for_nothing(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    always = (
        "",
        ENDPOINT,
        "/schedules/-_prune",
        "/runs/holdfast_runs/run-003",
        CONNECTION,
        DOCUMENT,
        "/documents",
    )
    for path in OWN_PAGES:
        if path not in (*always, "/documents", "/users", "/you"):
            assert 'class="nothing"' in await ann.page(f"/console{path}"), path
    assert "Nothing. Everything" in await ann.page("/console")


async def test_every_page_comes_with_a_policy_that_forbids_inline_scripts(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    for path in ("/console", "/console/nowhere", "/sign-in", "/console/lanterns"):
        _, text, headers = await ann.ask("GET", path)
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["cache-control"] == "no-store"
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|\sstyle=|<style", text), path


ASKED_WRONGLY = (
    ("/console/deliveries?status=lost", 422, "status is one of"),
    ("/console/deliveries?cursor=x", 400, "not a cursor"),
    ("/console/deliveries/holdfast/none", 404, "There is no delivery"),
    ("/console/deliveries?q=" + "x" * 2_000, 422, "at most 1000 characters"),
    ("/console/inbox/none", 404, "no message"),
    ("/console/schedules/none", 404, "no schedule"),
    ("/console/usage?month=2026-13", 422, "as in 2026-11"),
    ("/console/usage?month=0000-01", 200, "Nothing was used"),
    ("/console/audit?by=colour", 422, "by is one of"),
    ("/console?tenant=a%2Fb", 422, "can&#39;t hold"),
    ("/console?tenant=", 422, "can&#39;t be empty"),
    ("/console/lanterns?state=red", 422, "state is one of lit, dark"),
    ("/console/lanterns/none", 404, "There is no such lantern"),
    ("/console/nowhere/at/all", 404, "There is no such page"),
    ("/assets/console/x/none.css", 404, "no such asset"),
    ("/assets/../../pyproject.toml", 404, ""),
)


async def test_what_is_asked_wrongly_is_told_on_a_page(harness: ConsoleHarness) -> None:
    ann = await harness.signed_in("ann")
    for path, status, said in ASKED_WRONGLY:
        text = await ann.page(path, status)
        assert said in text, path
        assert "Traceback" not in text


async def test_a_fault_of_ours_is_told_without_its_words(harness: ConsoleHarness) -> None:
    text = await (await harness.signed_in("ann")).page("/console/lanterns/admin/broken", 500)
    assert "must not be told" not in text
    assert "the log knows more" in text
    assert 'aria-label="Pages"' in text


async def test_a_viewer_sees_but_finds_nothing_to_press(harness: ConsoleHarness) -> None:
    await fill(harness.runtime)
    admin, viewer = await harness.signed_in("ann"), await harness.signed_in("vic", role="viewer")
    dead = (await Deliveries(harness.runtime.store.tenant("-")).dead_letters(limit=1)).docs[0].id
    for path in ("/console/dead-letters", f"/console/deliveries/holdfast/{dead}", "/console/schedules"):
        offered = {unescape(url) for url in ACT.findall(await admin.page(path))}
        assert offered, path
        assert not ACT.findall(await viewer.page(path)), path
        for url in offered:
            assert (await viewer.act(url, {"on": True} if "switch" in url else {}))[0] == 403, url
    for path in ("/inbox", "/channels", "/connections", "/documents", "/audit", "/users"):
        text = await viewer.page(f"/console{path}", 403)
        assert "needs admin" in text
        assert f'href="/console{path}"' not in text


async def test_a_tenants_person_sees_that_tenant_alone(harness: ConsoleHarness) -> None:
    await fill(harness.runtime)
    await harness.runtime.store.tenant("acme").commit(put(_letter("acme's own", "acme")))
    ben = await harness.signed_in("ben", role="admin", tenant_id="acme")
    shown = await ben.page("/console/dead-letters")
    assert "acme&#39;s own" in shown
    assert "503 Service Unavailable" not in shown
    assert "health" not in await ben.page("/console")
    await ben.page("/console/dead-letters?tenant=-", 403)
    await ben.page("/console/users", 403)


async def test_an_empty_list_says_where_else_there_may_be_something(harness: ConsoleHarness) -> None:
    await harness.runtime.store.tenant("acme").commit(put(_endpoint("acme")))
    ann = await harness.signed_in("ann")
    shown = await ann.page("/console/deliveries?tenant=-")
    assert 'Look at <a href="/console/deliveries?tenant=acme">acme</a>' in shown
    assert '<option value="acme">' in shown
    ben = await harness.signed_in("ben", tenant_id="acme", role="admin")
    assert "Look at" not in await ben.page("/console/deliveries")


def _endpoint(tenant_id: str) -> Endpoint:
    return Endpoint(id="rms", tenant_id=tenant_id, url="https://rms.example", created_at=DIED_AT)


async def test_an_administrator_of_the_whole_finds_what_waits_in_any_tenant(harness: ConsoleHarness) -> None:
    await harness.runtime.store.tenant("acme").commit(put(_letter("acme's own", "acme")))
    ann = await harness.signed_in("ann")
    told = re.search(r'<a href="([^"]+)">1 dead letter of acme</a>', await ann.page("/console"))
    assert told is not None
    shown = await ann.page(unescape(told[1]))
    assert "acme&#39;s own" in shown
    assert 'href="/console/deliveries?tenant=acme"' in shown
    assert "replay?tenant=acme" in shown


def _letter(reason: str, tenant_id: str, number: int = 0) -> DeadLetter:
    return DeadLetter(
        id=f"{tenant_id}-{number:03}~rms", tenant_id=tenant_id, event_id=f"{number:03}", endpoint_id="rms",
        event_type="lease.renewed", reason=reason, died_at=DIED_AT,
    )  # fmt: skip


async def test_what_was_taken_against_no_known_limit_is_shown_without_one(harness: ConsoleHarness) -> None:
    store = harness.runtime.store.tenant("-")
    await store.commit(*(create(Allowance(tenant_id="-", name=f"old {n:03}", used=7)) for n in range(60)))
    ann = await harness.signed_in("ann")
    text = await ann.page("/console/usage")
    assert "old 000" in text
    assert "of 0" not in text
    following = re.search(r'href="([^"]+)" rel="next"', text)
    assert following is not None
    assert "old 059" in await ann.page(unescape(following[1]))


async def test_long_lists_come_in_pages(harness: ConsoleHarness) -> None:
    await harness.runtime.store.tenant("-").commit(*(create(_letter("no", "-", n)) for n in range(120)))
    ann, path, seen = await harness.signed_in("ann"), "/console/dead-letters", set[str]()
    for rows in (50, 50, 20):
        text = await ann.page(path)
        keys = re.findall(r'data-key="([^"]+)"', text)
        assert len(keys) == rows
        seen |= set(keys)
        following = re.search(r'href="([^"]+)" rel="next"', text)
        path = unescape(following[1]) if following else ""
    assert len(seen) == 120
    assert path == ""


async def test_hostile_words_stay_words(harness: ConsoleHarness) -> None:
    letter = _letter(HOSTILE, "-")
    lantern = Lantern(id="l1", place=HOSTILE)
    await harness.runtime.store.tenant("-").commit(create(letter), create(lantern))
    ann = await harness.signed_in("ann")
    for path in ("/console/dead-letters", "/console/lanterns", "/console/lanterns/l1"):
        text = await ann.page(path)
        assert "&lt;script&gt;" in text, path
        assert "<script>alert" not in text
        assert "<img src=x" not in text
    for asked in ("q", "endpoint"):
        text = await ann.page(f"/console/deliveries?{asked}={HOSTILE.replace('&', '%26')}")
        assert "<script>alert" not in text
        assert "<img src=x" not in text
