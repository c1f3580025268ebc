"""The reader: public pages and forms that work without script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from holdfast.clock import from_us
from holdfast.kit.access import CurrentVisitor
from holdfast.operation import Operator
from holdfast.service import PageRequest, PublicForm, PublicPage
from holdfast.services.hackernews.domain.mutes import Mutes, read_mutes, write_mutes
from holdfast.services.hackernews.domain.presentation import ITEM_URL, StoryCard, story_card
from holdfast.services.hackernews.domain.selection import StoriesQuery
from holdfast.services.hackernews.feed import FEED_PATH
from holdfast.services.hackernews.models import STORY_ID_MAX
from holdfast.services.hackernews.operations import SIGN_INS, HackerNews, reader_of

PAGE_STORIES: Final = 40
HIDDEN_STORIES: Final = 50
SCORES: Final = (50, 100, 250, 500, 1_000)
MUTES_CHARACTERS_MAX: Final = 10_000
SPAN_TITLES: Final = {"Day": "Today", "Week": "Week", "Month": "Month", "Year": "Year", "All": "All time"}
# Of a page's address, in the order in which links have them.
_FILTERS: Final = ("q", "domain", "by", "min_score")


class Address(msgspec.Struct, frozen=True):
    """The address of a list of stories: its span, filters and place in the list.

    Example: `Address("Week", {"domain": "example.com"}).link(skip=40)`
    """

    timespan: str
    filters: Mapping[str, str]

    def link(self, *, skip: int = 0, **changes: str) -> str:
        """The path below the service's address, with changes; an empty value leaves a filter out."""
        asked = {"timespan": self.timespan, **self.filters, **changes}
        fields = {name: value for name, value in asked.items() if value}
        return "/?" + urlencode(fields | ({"skip": str(skip)} if skip else {}))


def selection_of(ask: PageRequest, mutes: Mutes) -> StoriesQuery:
    """The stories that a page is asked for; without a timespan, those of the day."""
    return StoriesQuery(
        timespan=ask.text("timespan", "Day"), limit=PAGE_STORIES, skip=ask.number("skip", 0), q=ask.text("q"),
        domain=ask.text("domain"), by=ask.text("by"), min_score=ask.number("min_score", 0),
        mute_words=mutes.words, mute_domains=mutes.domains,
    )  # fmt: skip


def public_pages(operations: HackerNews) -> list[PublicPage]:
    async def front(ask: PageRequest) -> dict[str, Any]:
        mutes = read_mutes(ask.preferences)
        selection, reader = selection_of(ask, mutes), reader_of(ask.caller)
        page = await operations.stories(selection, reader=reader)
        filters = {name: str(getattr(selection, name) or "") for name in _FILTERS}
        return {
            **_usual(ask), "page": page, "address": Address(page.timespan, filters), "filters": filters,
            "filtered": any(filters.values()),
            "spans": SPAN_TITLES, "scores": SCORES, "mutes": mutes, "back": max(0, page.skip - PAGE_STORIES),
            "time_of": _time_of, "updated_at": page.cached_at, "feed": FEED_PATH,
        }  # fmt: skip

    async def hidden(ask: PageRequest) -> dict[str, Any]:
        reader = reader_of(ask.caller)
        if not reader:
            return {**_usual(ask), "rows": [], "cursor": None}
        page = await operations.hidden(reader, limit=HIDDEN_STORIES, cursor=ask.cursor)
        known = await operations.find_stories([one.id for one in page.hidden])
        rows = [(one.id, _card_of(known, one.id), from_us(one.added_at * 1_000)) for one in page.hidden]
        return {**_usual(ask), "rows": rows, "cursor": page.cursor, "item_url": ITEM_URL}

    async def login(ask: PageRequest) -> dict[str, Any]:
        return _usual(ask)

    async def mutes(ask: PageRequest) -> dict[str, Any]:
        return {**_usual(ask), "mutes": read_mutes(ask.preferences), "saved": "saved" in ask.query}

    return [
        PublicPage(path="", template="front.html", data=front),
        PublicPage(path="/hidden", template="hidden.html", data=hidden),
        PublicPage(path="/login", template="login.html", data=login),
        PublicPage(path="/mutes", template="mutes.html", data=mutes),
    ]


def _usual(ask: PageRequest) -> dict[str, Any]:
    return {"reader": reader_of(ask.caller)}


def _card_of(known: Mapping[int, Any], story_id: int) -> StoryCard | None:
    return story_card(known[story_id]) if story_id in known else None


def _time_of(card: StoryCard) -> Any:
    return from_us(card.time * 1_000)


def public_forms(operations: HackerNews) -> list[PublicForm]:
    async def hide(by: Operator, ask: PageRequest, visitor: CurrentVisitor) -> str:
        story_id = ask.number("id", -1, high=STORY_ID_MAX)
        await operations.hides.add(reader_of(by.caller), [story_id])
        return ask.text("next", "/", characters_max=2_000)

    async def unhide(by: Operator, ask: PageRequest, visitor: CurrentVisitor) -> str:
        story_id = ask.number("id", -1, high=STORY_ID_MAX)
        await operations.hides.remove(reader_of(by.caller), story_id)
        return "/hidden"

    async def login(by: Operator, ask: PageRequest, visitor: CurrentVisitor) -> str:
        # Not by `text`, which would strip it: a password is what was typed.
        account, password = ask.text("acct", characters_max=100), ask.query.get("pw", "")[:200]
        visitor.cookie = await operations.sign_in(by, account, password=password, replaces=visitor.session_id)
        return "/"

    async def logout(by: Operator, ask: PageRequest, visitor: CurrentVisitor) -> str:
        await operations.sign_out(by)
        visitor.cookie = ""
        return "/"

    async def mutes(by: Operator, ask: PageRequest, visitor: CurrentVisitor) -> str:
        stored = read_mutes(visitor.preferences) if "add" in ask.query else Mutes()
        words, domains = (
            ask.text(name, characters_max=MUTES_CHARACTERS_MAX).splitlines() for name in ("words", "domains")
        )
        visitor.preferences = write_mutes([*stored.words, *words], [*stored.domains, *domains])
        return "/" if "add" in ask.query else "/mutes?saved=1"

    return [
        PublicForm(path="/hide", act=hide, needs="visitor"),
        PublicForm(path="/unhide", act=unhide, needs="visitor"),
        PublicForm(path="/login", act=login, operation=HackerNews.sign_in, quota=SIGN_INS),
        PublicForm(path="/logout", act=logout, operation=HackerNews.sign_out),
        PublicForm(path="/mutes", act=mutes, needs="public"),
    ]
