"""The simulated Hacker News, and the client against it: items, lists, sign-in, and how each fails."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast import providers
from holdfast.errors import HoldfastError, RetryLaterError, TooManyRequestsError
from holdfast.providers.hackernews import HackerNewsApi, HackerNewsSite, Item
from holdfast.simulators.hackernews import (
    AddAccount,
    AddStories,
    Age,
    ChangeItem,
    HackerNewsSimulator,
    InjectedFault,
    Limits,
    Outage,
    PostItem,
)
from tests.providers.provider_fixture import HastyClock

PASSWORD = "correct horse & battery=staple"


@pytest.fixture
async def news(hasty: HastyClock) -> AsyncIterator[HackerNewsSimulator]:
    async with HackerNewsSimulator(clock=hasty) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as made:
        yield made


@pytest.fixture
def api(news: HackerNewsSimulator, session: aiohttp.ClientSession, hasty: HastyClock) -> HackerNewsApi:
    return HackerNewsApi(session, clock=hasty, base_url=news.api_url)


@pytest.fixture
def site(news: HackerNewsSimulator, session: aiohttp.ClientSession, hasty: HastyClock) -> HackerNewsSite:
    news.run(AddAccount(acct="pg", pw=PASSWORD))
    return HackerNewsSite(session, clock=hasty, base_url=news.url)


async def test_items_of_every_kind_are_read_as_the_documentation_has_them(
    news: HackerNewsSimulator, api: HackerNewsApi
) -> None:
    documented = Path(providers.__path__[0]) / "hackernews" / "fixtures" / "items.json"
    for fields in json.loads(documented.read_text()):
        if fields is None:
            assert await api.item(1) is None
            continue
        known = {name: value for name, value in fields.items() if name in Item.__struct_fields__}
        news.state.post(**known)
        item = await api.item(fields["id"])
        assert item is not None
        assert (item.type, item.dead, item.deleted) == (
            fields["type"], fields.get("dead", False), fields.get("deleted", False)
        )  # fmt: skip
        if not item.deleted:
            assert (item.title, item.score) == (fields.get("title", item.title), fields.get("score", 1))


async def test_lists_hold_what_they_say_in_their_order(news: HackerNewsSimulator, api: HackerNewsApi) -> None:
    news.run(AddStories(count=700, days=30))
    job: Any = news.run(PostItem(type="job", score=3_000))
    new, top, best = [await api.ids(name) for name in ("newstories", "topstories", "beststories")]
    assert (len(new), len(top)) == (500, 500)
    assert 0 < len(best) <= 200
    assert new == sorted(new, reverse=True)
    assert (job["id"] in new, job["id"] in top, job["id"] in best) == (False, True, False)
    scores = [news.state.items[one].score for one in best]
    assert scores == sorted(scores, reverse=True)
    news.run(ChangeItem(id=best[0], dead=True))
    news.run(ChangeItem(id=best[1], deleted=True))
    assert not {best[0], best[1]} & {one for name in ("newstories", "topstories", "beststories")
                                     for one in await api.ids(name)}  # fmt: skip
    assert await api.max_item_id() == news.state.max_id
    assert (await api.updates()).items[0] == best[1]


async def test_stories_live_and_age(news: HackerNewsSimulator, hasty: HastyClock) -> None:
    news.run(AddStories(count=50, days=1))
    before = {one.id: one.score for one in news.state.items.values()}
    news.run(Age(hours=1))
    assert sum(one.score for one in news.state.items.values()) > sum(before.values())
    hasty.tick(80 * 3_600)
    frozen = {one.id: one.score for one in news.state.items.values()}
    news.run(Age(hours=1))
    assert {one.id: one.score for one in news.state.items.values()} == frozen


async def test_an_outage_and_slow_items(
    news: HackerNewsSimulator, api: HackerNewsApi, site: HackerNewsSite, hasty: HastyClock
) -> None:
    item: Any = news.run(PostItem())
    news.run(ChangeItem(id=item["id"], delay_s=3.0))
    assert await api.item(item["id"]) is not None
    assert 3.0 in hasty.slept
    news.run(Outage())
    with pytest.raises(RetryLaterError, match="503"):
        await api.ids("newstories")
    with pytest.raises(RetryLaterError):
        await site.sign_in("pg", PASSWORD)
    news.run(Outage(on=False))
    assert await api.ids("newstories") == [item["id"]]
    news.inject(InjectedFault(path="/item/", status=500))
    assert await api.item(item["id"]) is not None


async def test_a_redirect_to_news_is_a_sign_in_and_a_bad_password_is_none(
    news: HackerNewsSimulator, site: HackerNewsSite
) -> None:
    assert await site.sign_in("pg", PASSWORD)
    assert not await site.sign_in("pg", PASSWORD[:-1])
    assert not await site.sign_in("nobody", "")
    assert "horse" not in repr(list(news.calls))


async def test_an_address_that_tried_too_often_is_asked_for_validation(
    news: HackerNewsSimulator, site: HackerNewsSite
) -> None:
    news.run(Limits(sign_ins=2))
    for _ in range(2):
        assert not await site.sign_in("pg", "wrong")
    with pytest.raises(TooManyRequestsError, match="proof of a person"):
        await site.sign_in("pg", PASSWORD)


@pytest.mark.parametrize("fault", [{"status": 500}, {"cut": True}, {"status": 404}, {"status": 301}], ids=str)
async def test_a_sign_in_without_a_clear_answer_is_sent_once_and_names_no_password(
    news: HackerNewsSimulator, site: HackerNewsSite, fault: dict[str, Any]
) -> None:
    news.inject(InjectedFault(path="/login", count=5, **fault))
    with pytest.raises(HoldfastError) as raised:
        await site.sign_in("pg", PASSWORD)
    assert "horse" not in f"{raised.value!r} {raised.value.__cause__!r} {raised.value.__context__!r}"
    assert len(news.calls) <= 1
