"""The reader's HTTP API: stories, hidden ones, signing in by Hacker News, the feed, the scheduler's route."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import feedparser
import pytest

from holdfast.kit.access import ApiTokens
from holdfast.simulators.hackernews import Limits, Outage, PostItem
from holdfast.testing import ManualClock
from tests.services.hackernews.reading import ACCOUNT, Site, reading

HOSTILE = "<script>alert(1)</script>\"'&]]>\x00\x0b\x1b\u202e\ud83d".encode("utf-8", "replace").decode()


@pytest.fixture
async def site(tmp_path: Path, clock: ManualClock) -> AsyncIterator[Site]:
    async with reading(tmp_path, clock, stories=30) as made:
        yield made


async def test_stories_come_best_first_in_pages_and_by_filters(site: Site) -> None:
    reader = await site.reader()
    page = await reader.get("/api/v1/stories?timespan=Week&limit=10")
    stories = page["stories"]
    assert [s["score"] for s in stories] == sorted((s["score"] for s in stories), reverse=True)
    assert (page["timespan"], page["skip"], page["nextSkip"], len(stories)) == ("Week", 0, 10, 10)
    everything = await reader.ids("timespan=Week")
    assert len(everything) == 30
    assert await reader.ids("timespan=Week&limit=10&skip=25") == everything[25:]
    assert await reader.ids("timespan=whatever") == await reader.ids("timespan=All")
    first = stories[0]
    assert first["id"] in await reader.ids(f"by={first['by']}&min_score={first['score']}")
    assert await reader.ids("min_score=1000000") == []
    domain = next(s["domain"] for s in stories if s["domain"])
    found = (await reader.get(f"/api/v1/stories?domain={domain}"))["stories"]
    assert {s["domain"] for s in found} == {domain}
    assert set(await reader.ids(f"q={first['title'].split()[0]}")) >= {first["id"]}


async def test_what_makes_no_sense_is_refused(site: Site) -> None:
    reader = await site.reader()
    for query in ("limit=0", "limit=501", "limit=x", "skip=-1", "min_score=-1", "q=" + "x" * 201):
        status, body, _ = await reader.ask("GET", f"/api/v1/stories?{query}")
        assert (status, body["error"]["code"]) == (422, "invalid"), query
    for path in ("/?skip=-1", "/?min_score=x", "/?q=" + "x" * 201):
        status, page, _ = await reader.ask("GET", path)
        assert (status, "<h1>Invalid input</h1>" in page) == (422, True), path


async def test_an_unknown_path_is_404_with_an_error(site: Site) -> None:
    status, body, _ = await (await site.reader()).ask("GET", "/api/v1/nothing-here")
    assert (status, set(body)) == (404, {"error"})


async def test_hiding_is_for_readers_who_signed_in_and_idempotent(site: Site) -> None:
    reader = await site.reader()
    first, second, *_ = await reader.ids("timespan=Day")
    assert (await reader.ask("GET", "/api/v1/hidden"))[0] == 401
    assert (await reader.ask("POST", "/api/v1/hidden", json={"hidden": first}))[0] == 401
    assert await reader.sign_in() == 200
    assert await reader.get("/api/v1/me") == {"name": "pg"}
    for added in (1, 0):
        assert (await reader.ask("POST", "/api/v1/hidden", json={"hidden": first}))[:2] == (
            200,
            {"added": added},
        )
    assert first not in await reader.ids("timespan=Day")
    assert second in await reader.ids("timespan=Day")
    assert [one["id"] for one in (await reader.get("/api/v1/hidden"))["hidden"]] == [first]
    for removed in (True, False):
        assert (await reader.ask("DELETE", f"/api/v1/hidden/{first}"))[:2] == (200, {"removed": removed})
    assert first in await reader.ids("timespan=Day")


async def test_only_ids_can_be_hidden(site: Site) -> None:
    reader = await site.reader()
    await reader.sign_in()
    wrong: list[Any] = [-1, "1", 1.5, None, True, 10**12, [1, -1], {}]
    for hidden in wrong:
        status, _, _ = await reader.ask("POST", "/api/v1/hidden", json={"hidden": hidden})
        assert status == 422, hidden
    assert (await reader.get("/api/v1/hidden"))["hidden"] == []


async def test_what_was_hidden_before_signing_in_is_merged_and_known_on_every_device(site: Site) -> None:
    phone, laptop = await site.reader(), await site.reader()
    ids = await phone.ids("timespan=Day")
    await phone.sign_in()
    await phone.ask("POST", "/api/v1/hidden", json={"hidden": ids[0]})
    await laptop.sign_in()
    merged = await laptop.ask("POST", "/api/v1/hidden", json={"hidden": ids[:3]})
    assert merged[:2] == (200, {"added": 2})
    for device in (phone, laptop):
        assert await device.ids("timespan=Day") == ids[3:]


async def test_hacker_news_decides_who_may_come_in(site: Site) -> None:
    reader = await site.reader()
    assert await reader.sign_in(pw="wrong") == 401
    assert await reader.get("/api/v1/me") == {"name": None}
    site.news.hackernews.run(Outage())
    status, body, headers = await reader.ask("POST", "/api/v1/login", json=ACCOUNT)
    assert (status, body["error"]["code"]) == (503, "retry_later")
    assert "Hacker News" in body["error"]["message"]
    assert int(headers["retry-after"]) > 0
    site.news.hackernews.run(Outage(on=False))
    site.news.hackernews.run(Limits(sign_ins=1))
    assert [await reader.sign_in(pw="wrong"), await reader.sign_in()] == [401, 429], "it wants a person"
    site.news.hackernews.run(Limits(sign_ins=0))
    for account in ("", "a b", "../pg", "x" * 41):
        assert await reader.sign_in(acct=account) == 422
    assert await reader.sign_in() == 200


async def test_an_address_may_try_ten_times_in_a_quarter_of_an_hour(site: Site, clock: ManualClock) -> None:
    reader = await site.reader()
    for n in range(10):
        if n % 2:
            assert await reader.sign_in(pw="wrong") == 401
        else:
            form = {"acct": "pg", "pw": "wrong"}
            assert (await reader.ask("POST", "/login", data=form))[0] == 401
    status, body, headers = await reader.ask("POST", "/api/v1/login", json=ACCOUNT)
    assert (status, body["error"]["code"], headers["retry-after"]) == (429, "too_many_requests", "900")
    await clock.advance(901)
    assert await reader.sign_in() == 200


async def test_the_session_lasts_a_day_and_ends_with_sign_out_for_copies_too(
    site: Site, clock: ManualClock
) -> None:
    reader, thief = await site.reader(), await site.reader()
    _, _, headers = await reader.ask("POST", "/api/v1/login", json=ACCOUNT)
    cookie = headers["set-cookie"]
    assert re.fullmatch(
        r"hackernews_visitor=[\w.-]+; Path=/hackernews; Max-Age=86400; HttpOnly; SameSite=Strict", cookie
    )
    copy = {"cookie": cookie.partition(";")[0]}
    await clock.advance(86_000)
    assert await reader.get("/api/v1/me") == {"name": "pg"}
    await clock.advance(86_000)
    assert await thief.get("/api/v1/me", headers=copy) == {"name": "pg"}
    assert (await reader.ask("POST", "/api/v1/logout"))[:2] == (200, {"name": None})
    assert await thief.get("/api/v1/me", headers=copy) == {"name": None}
    assert (await reader.ask("POST", "/api/v1/logout"))[0] == 200
    await reader.sign_in()
    await clock.advance(86_401)
    assert await reader.get("/api/v1/me") == {"name": None}


async def test_the_password_is_nowhere_in_store_files_or_logs(
    tmp_path: Path, clock: ManualClock, capfd: pytest.CaptureFixture[str]
) -> None:
    good, wrong = ACCOUNT["pw"], "wr0ng-but-secret-42"
    async with reading(tmp_path, clock) as site:
        reader = await site.reader()
        assert await reader.sign_in() == 200
        assert await reader.sign_in(pw=wrong) == 401
        assert (await reader.ask("POST", "/login", data=ACCOUNT))[0] == 303
        assert (await reader.ask("POST", "/login", data={"acct": "pg", "pw": wrong}))[0] == 401
        assert (await reader.ask("POST", "/api/v1/login", json={"acct": "pg", "pw": wrong, "x": 1}))[0] == 422
        assert (await reader.ask("POST", "/api/v1/login", data=f'{{"acct": "pg", "pw": "{wrong}"'))[0] == 400
        site.news.hackernews.run(Outage())
        assert await reader.sign_in() == 503
        recorded = repr(site.news.hackernews.calls)
        trail = b"".join([line async for line in site.news.runtime.audit("-").export()])
        assert b"hackernews.signed_in" in trail
    said = "".join(capfd.readouterr())
    files = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) >= 2
    for password in (good, wrong):
        assert password not in said + recorded
        assert password.encode() not in trail + b"".join(files)


async def test_the_feed_is_read_by_feedparser_and_its_ids_stay(site: Site, clock: ManualClock) -> None:
    reader = await site.reader()
    status, text, headers = await reader.ask("GET", "/api/v1/feed.rss?timespan=Week")
    assert (status, headers["content-type"]) == (200, "application/rss+xml; charset=utf-8")
    feed = feedparser.parse(text)
    assert (feed.bozo, feed.version, len(feed.entries)) == (False, "rss20", 30)
    assert [entry.id.rpartition("=")[2] for entry in feed.entries] == [
        str(one) for one in await reader.ids("timespan=Week")
    ]
    ids = {entry.link: entry.id for entry in feed.entries}
    for item in site.news.hackernews.state.items.values():
        item.score += item.id % 7 * 100
    await clock.advance(7_200)
    await site.fetch()
    later = feedparser.parse(await reader.get("/api/v1/feed.rss?timespan=Week"))
    assert {entry.link: entry.id for entry in later.entries} == ids
    assert [entry.id for entry in later.entries] != [entry.id for entry in feed.entries]
    known = {"if-none-match": (await reader.ask("GET", "/api/v1/feed.rss?timespan=Week"))[2]["etag"]}
    assert (await reader.ask("GET", "/api/v1/feed.rss?timespan=Week", headers=known))[0] == 304


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "data:text/html,x", "https://[bad", 'https://x/"><script>']
)
async def test_hostile_titles_authors_and_links_are_harmless(
    tmp_path: Path, clock: ManualClock, url: str
) -> None:
    async with reading(tmp_path, clock) as site:
        site.news.hackernews.run(PostItem(title=HOSTILE, by=HOSTILE, url=url, score=500))
        await site.fetch()
        reader = await site.reader()
        (story,) = (await reader.get("/api/v1/stories"))["stories"]
        assert story["url"].startswith(("https://news.ycombinator.com/item?id=", "https://x/"))
        page = await reader.get("/?timespan=All")
        assert "<script>alert" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert re.findall(r'href="(?!https?://|/|#)[^"]*"', page) == []
        feed = feedparser.parse(await reader.get("/api/v1/feed.rss"), sanitize_html=False)
        assert (feed.bozo, len(feed.entries)) == (False, 1)
        assert feed.entries[0].link == story["url"]
        assert "<script>" in feed.entries[0].title, "text is text, and readers escape it"


async def test_the_worker_runs_for_the_scheduler_alone(tmp_path: Path, clock: ManualClock) -> None:
    async with reading(tmp_path, clock, at_root=True, proxies="127.0.0.1/32") as site:
        site.news.hackernews.run(PostItem(score=5))
        reader = await site.reader()
        await reader.sign_in()
        for path in ("/_ah/worker", "/api/v1/_ah/worker"):
            assert (await reader.ask("GET", path))[0] == 403
            forged = {"x-appengine-cron": "true", "x-forwarded-for": "203.0.113.7"}
            assert (await reader.ask("GET", path, headers=forged))[0] == 403
            assert (await reader.get(path, headers={"x-appengine-cron": "true"}))["status"] == "done"
        token = await ApiTokens(site.news.runtime.store).create("cron", role="service", tenant_id="-")
        assert (await reader.get("/_ah/worker", headers={"authorization": f"Bearer {token}"}))["new"] == 0
        assert len(await reader.ids()) == 1
        page = await reader.get("/?timespan=All")
        assert '<form id="hide" method="post" action="/hide">' in page
        (style,) = re.findall(r'<link rel="stylesheet" href="([^"]+)">', page)
        assert "prefers-color-scheme" in await reader.get(style)


async def test_the_api_is_described(site: Site) -> None:
    token = await ApiTokens(site.news.runtime.store).create("look", role="viewer", tenant_id="-")
    session, bearer = (await site.reader()).session, {"authorization": f"Bearer {token}"}
    async with session.get("/openapi.json", headers=bearer) as described:
        paths = (await described.json())["paths"]
    for path, method in (
        ("stories", "get"), ("feed.rss", "get"), ("hidden", "get"), ("hidden", "post"),
        ("hidden/{story_id}", "delete"), ("login", "post"), ("logout", "post"), ("me", "get"),
        ("_ah/worker", "get"),
    ):  # fmt: skip
        assert method in paths[f"/hackernews/api/v1/{path}"], path
