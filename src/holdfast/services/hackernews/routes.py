"""The service's HTTP API: stories and the feed for anybody, hidden stories for readers who signed in."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import msgspec
from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter
from msgspec import Meta

from holdfast.conditional import Representation, conditional_response
from holdfast.errors import ConfigError, InvalidError, JobFailedError
from holdfast.routing import (
    PREFIX,
    By,
    Cursor,
    Limit,
    RequestBody,
    Visitor,
    action_route,
    call_route,
    read_route,
    scheduler_route,
)
from holdfast.services.hackernews.domain.presentation import StoriesResponse
from holdfast.services.hackernews.domain.selection import StoriesQuery
from holdfast.services.hackernews.domain.spans import PAGE_MAX
from holdfast.services.hackernews.feed import FEED_PATH, MEDIA_TYPE, render_feed
from holdfast.services.hackernews.hidden_stories import ADDED_MAX, HiddenPage
from holdfast.services.hackernews.models import STORY_ID_MAX, StoryRound
from holdfast.services.hackernews.operations import AREA, SIGN_INS, HackerNews, reader_of

FEED_ITEMS: Final = 50
FEED_MAX_AGE_S: Final = 300
# For so long, strangers who ask for the same stories are given the same bytes.
MICROCACHE_S: Final = 1.0
# A round of the worker after an outage fetches thousands of items.
ROUND_S: Final = 600.0
PASSWORD_CHARACTERS_MAX: Final = 200
AnyRequest: TypeAlias = Request[Any, Any, Any]
Timespan: TypeAlias = Annotated[
    str, QueryParameter(description="Day, Week, Month, Year or All; anything else is All.", max_length=40)
]


Operations: TypeAlias = NamedDependency[HackerNews]
StoryId: TypeAlias = Annotated[int, Meta(ge=0, le=STORY_ID_MAX)]


class HideRequest(RequestBody, frozen=True):
    """A story to hide, or a list of them, such as those hidden before signing in."""

    hidden: StoryId | Annotated[list[StoryId], Meta(max_length=ADDED_MAX)]


class HideResponse(msgspec.Struct, frozen=True):
    """How many stories were not hidden before."""

    added: int


class UnhideResponse(msgspec.Struct, frozen=True):
    """Whether the story was hidden before."""

    removed: bool


class SignInRequest(RequestBody, frozen=True):
    """Name and password of a Hacker News account; the password is passed on and not kept."""

    acct: Annotated[str, Meta(min_length=1, max_length=100)]
    pw: Annotated[str, Meta(min_length=1, max_length=PASSWORD_CHARACTERS_MAX)]


class ReaderResponse(msgspec.Struct, frozen=True):
    """The reader who is signed in; null for nobody."""

    name: str | None


@read_route("/stories", "public", area=AREA, microcache_s=MICROCACHE_S)
async def stories(
    request: AnyRequest,
    operations: Operations,
    visitor: Visitor,
    timespan: Timespan = "All",
    limit: Annotated[int, QueryParameter(ge=1, le=PAGE_MAX)] = PAGE_MAX,
    skip: Annotated[int, QueryParameter(ge=0, le=1_000_000, description="So many stories are left out.")] = 0,
    q: Annotated[str, QueryParameter(max_length=200, description="Words of the title.")] = "",
    domain: Annotated[str, QueryParameter(max_length=253, description="The host of the link.")] = "",
    author: Annotated[str, QueryParameter(name="by", max_length=100, description="The author.")] = "",
    min_score: Annotated[int, QueryParameter(ge=0, le=1_000_000, description="The least score.")] = 0,
) -> Response[StoriesResponse]:
    """The highest-scored stories of a timespan, without those that the reader hid."""
    selection = StoriesQuery(
        timespan=timespan, limit=limit, skip=skip, q=q, domain=domain, by=author, min_score=min_score
    )
    reader = reader_of(visitor.caller)
    shown = (await operations.stories(selection, reader=reader)).json
    cache_control = "private, no-cache" if reader else "public, no-cache"
    return conditional_response(request.headers, shown, cache_control=cache_control, vary="cookie")


@read_route("/feed.rss", "public", area=AREA, media_type=MEDIA_TYPE)
async def feed(
    request: AnyRequest,
    operations: Operations,
    timespan: Timespan = "All",
    limit: Annotated[int, QueryParameter(ge=1, le=PAGE_MAX)] = FEED_ITEMS,
) -> Response[str]:
    """The best stories of a timespan as RSS 2.0."""
    page = await operations.stories(StoriesQuery(timespan=timespan, limit=limit))
    origin = operations.public_url.rstrip("/") or f"{request.url.scheme}://{request.url.netloc}"
    base_url = origin + request.scope["path"].removesuffix(FEED_PATH)
    xml = render_feed(page.cards, timespan=page.timespan, base_url=base_url, at=page.cached_at)
    return conditional_response(
        request.headers, Representation(xml, MEDIA_TYPE), cache_control=f"public, max-age={FEED_MAX_AGE_S}"
    )


@read_route("/hidden", "visitor", area=AREA)
async def hidden(operations: Operations, by: By, limit: Limit = 100, cursor: Cursor = None) -> HiddenPage:
    """The stories that the reader hid, the latest first."""
    return await operations.hidden(reader_of(by.caller), limit=limit, cursor=cursor)


@call_route("/hidden", "visitor", area=AREA, action="hide")
async def hide(
    request: AnyRequest, operations: Operations, by: By, data: JSONBody[HideRequest]
) -> HideResponse:
    """Hide stories for good; one that is hidden already stays so."""
    try:
        # The framework takes "1" for 1; an id is a number.
        asked = msgspec.json.decode(await request.body(), type=HideRequest).hidden
    except msgspec.ValidationError as fault:
        raise InvalidError(str(fault), "hidden") from None
    ids = asked if isinstance(asked, list) else [asked]
    return HideResponse(await operations.hides.add(reader_of(by.caller), ids))


@call_route("/hidden/{story_id:int}", "visitor", area=AREA, action="unhide", method="DELETE")
async def unhide(operations: Operations, by: By, story_id: FromPath[int]) -> UnhideResponse:
    """Show a story again; one that is not hidden stays so."""
    return UnhideResponse(await operations.hides.remove(reader_of(by.caller), story_id))


@action_route("/login", HackerNews.sign_in, quota=SIGN_INS)
async def login(
    operations: Operations, by: By, visitor: Visitor, data: JSONBody[SignInRequest]
) -> ReaderResponse:
    """Sign in with one's own Hacker News account; the session's cookie comes with the response."""
    visitor.cookie = await operations.sign_in(by, data.acct, password=data.pw, replaces=visitor.session_id)
    return ReaderResponse(data.acct)


@action_route("/logout", HackerNews.sign_out)
async def logout(operations: Operations, by: By, visitor: Visitor) -> ReaderResponse:
    """End the session; nothing happens without one."""
    await operations.sign_out(by)
    visitor.cookie = ""
    return ReaderResponse(None)


@read_route("/me", "public", area=AREA)
async def me(visitor: Visitor) -> ReaderResponse:
    """Who is signed in."""
    return ReaderResponse(reader_of(visitor.caller) or None)


@scheduler_route(["/_ah/worker", f"{PREFIX}/_ah/worker"], HackerNews.run_worker, time_limit_s=ROUND_S)
async def worker(operations: Operations, by: By) -> StoryRound:
    """Run a round of the worker: for a platform's scheduler alone."""
    try:
        return await operations.run_worker(by)
    except ConfigError as fault:
        raise JobFailedError(fault.message, details={"setting": str(fault.path)}) from None


ROUTES: Final = (stories, feed, hidden, hide, unhide, login, logout, me, worker)
