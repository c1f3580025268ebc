"""What readers and operators can do with the service, and read from it.

What a reader hides is the reader's own data, like a bookmark: `HackerNews.hides` changes it without an audit
event. What an operator does, also on a reader's behalf, is an operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Final

import msgspec

from holdfast.clock import from_us
from holdfast.conditional import Representation
from holdfast.errors import ConfigError, ForbiddenError, OutcomeUnknownError, RetryLaterError, UnverifiedError
from holdfast.kit.access import VisitorCaller
from holdfast.kit.rate_limit import WindowQuota
from holdfast.model import Caller
from holdfast.operation import Operator, operation
from holdfast.service import Context
from holdfast.services.hackernews.backfill import BackfillProgress, Report, StoryBackfill
from holdfast.services.hackernews.domain.presentation import StoriesResponse, StoryCard, story_card
from holdfast.services.hackernews.domain.ranking import RankedStory
from holdfast.services.hackernews.domain.selection import StoriesQuery, filter_stories, visible_stories
from holdfast.services.hackernews.domain.spans import SPANS, SpanName, span_of
from holdfast.services.hackernews.hidden_stories import HiddenPage, HiddenStories, check_reader
from holdfast.services.hackernews.metrics import HackerNewsMetrics
from holdfast.services.hackernews.models import CachedSpan, StoryRound
from holdfast.services.hackernews.sources import HackerNewsSources
from holdfast.services.hackernews.story_cache import StoryCache
from holdfast.services.hackernews.story_store import stored_stories
from holdfast.services.hackernews.worker import StoryWorker

AREA: Final = "hackernews"
_operation: Final = partial(operation, area=AREA, platform=True)
PAGES_MAX: Final = 200
LOOKUP_MIN: Final = 16
# Sign-ins of an address, whether they succeed or not.
SIGN_INS: Final = WindowQuota(name="hackernews sign-in", count=10, period_s=900)
_NO_SIGN_IN: Final = "signing in is off on this server; what you hide is kept in this browser"


class StoriesPage(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A page of stories; `next_skip` continues after it, None at the end."""

    timespan: SpanName
    stories: Sequence[RankedStory]
    skip: int
    next_skip: int | None
    cached_at: datetime

    @cached_property
    def cards(self) -> list[StoryCard]:
        """The stories as readers get them, computed once for a page that many ask for."""
        return [story_card(story) for story in self.stories]

    @cached_property
    def json(self) -> Representation:
        response = StoriesResponse(self.timespan, self.cards, self.skip, self.next_skip, self.cached_at)
        return Representation(msgspec.json.encode(response), "application/json")


def reader_of(caller: Caller | None) -> str:
    """The name of the reader behind a request; empty for a stranger."""
    return caller.name if isinstance(caller, VisitorCaller) else ""


class CachedList(msgspec.Struct, frozen=True, rename="camel"):
    """The cached list of a timespan: how many stories, and the time of the query that found them."""

    timespan: str
    stories: int = 0
    cached_at: datetime | None = None


class HackerNews:
    """The service as its routes, commands and pages use it.

    Example: `page = await operations.stories(StoriesQuery(timespan="Week"), reader="pg")`
    """

    def __init__(self, context: Context) -> None:
        self.settings, self.clock, self.store = context.settings, context.clock, context.store
        self.metrics = HackerNewsMetrics()
        self.sources = HackerNewsSources(self.settings, session=context.http_session, clock=context.clock)
        self.cache, self.hides = StoryCache(context.store), HiddenStories(context.store)
        self.worker = StoryWorker(context.store, self.sources, cache=self.cache, metrics=self.metrics)
        self.visitors, self.public_url = context.visitors, context.public_url
        self.backfills = StoryBackfill(context.store, self.sources, cache=self.cache)
        # Pages that need nothing of a reader, by what was asked for; of the list as it is now.
        self._pages: dict[tuple[str, int, int], tuple[Sequence[RankedStory], StoriesPage]] = {}

    # -- reads ------------------------------------------------------------------------------------

    async def stories(self, selection: StoriesQuery, *, reader: str = "") -> StoriesPage:
        """Return a page of a span's stories, without those that the reader hid, the filters or the mutes.

        The page is full as long as there are stories for it. An empty `reader` is a stranger.
        """
        span = span_of(selection.timespan)
        found = await self.cache.stories(span)
        self.metrics.pages.labels(found.level).inc()
        asked, personal = (span.name, selection.limit, selection.skip), bool(reader) or selection.filtered
        known = None if personal else self._pages.get(asked)
        if known is not None and known[0] is found.stories:
            return known[1]
        candidates = filter_stories(found.stories, selection) if selection.filtered else found.stories
        wanted = selection.skip + selection.limit
        shown = await self._visible(candidates, reader, count=wanted + 1)
        page = StoriesPage(
            timespan=span.name, stories=tuple(shown[selection.skip : wanted]), skip=selection.skip,
            next_skip=wanted if len(shown) > wanted else None, cached_at=found.cached_at
        )  # fmt: skip
        if not personal:
            if len(self._pages) >= PAGES_MAX:
                self._pages.clear()
            self._pages[asked] = found.stories, page
        return page

    async def _visible(
        self, candidates: Sequence[RankedStory], reader: str, *, count: int
    ) -> Sequence[RankedStory]:
        """Return the first `count` stories that the reader did not hide, looked up as far as needed."""
        if not reader:
            return candidates[:count]
        shown: list[RankedStory] = []
        known = await self.hides.known(reader)
        start, size = 0, count
        while start < len(candidates) and len(shown) < count:
            part = candidates[start : start + size]
            found = visible_stories(part, await known.among([story.id for story in part]))
            shown += found
            # Who hid all of these hid most of what follows, too.
            start, size = start + size, max(LOOKUP_MIN, 2 * (count - len(shown)) if found else 2 * size)
        return shown[:count]

    async def hidden(self, reader: str, *, limit: int = 100, cursor: str | None = None) -> HiddenPage:
        """Return what a reader hid, the latest first."""
        return await self.hides.page(reader, limit=limit, cursor=cursor)

    async def find_stories(self, story_ids: Sequence[int]) -> dict[int, RankedStory]:
        """Return the stored stories with these ids, for lists that only have ids, such as hidden ones."""
        return await stored_stories(self.store, story_ids)

    async def rounds(self, *, limit: int = 20) -> list[StoryRound]:
        """Return the latest rounds of the worker, newest first."""
        return await self.worker.rounds(limit=limit)

    async def spans(self) -> list[CachedList]:
        """Return what is cached of each timespan, as it is in the store."""
        found = await self.store.get_many(CachedSpan, list(SPANS))
        docs = [None if one is None else one.doc for one in found]
        return [
            CachedList(name, len(doc.value), from_us(doc.cached_at_ms * 1_000)) if doc else CachedList(name)
            for name, doc in zip(SPANS, docs, strict=True)
        ]

    async def newest_id(self) -> int:
        """Return the largest id that Hacker News has."""
        return await self.sources.api().max_item_id()

    # -- readers' sessions ------------------------------------------------------------------------

    @_operation("hackernews.signed_in", verb="sign-in", needs="public", subject="account")
    async def sign_in(self, by: Operator, account: str, *, password: str, replaces: str = "") -> str:
        """Return the cookie of a new session if Hacker News lets the account in, else UnverifiedError.

        The password is passed on and forgotten. TooManyRequestsError and RetryLaterError say that Hacker News
        gave no verdict. The session that it `replaces` ends.
        """
        check_reader(account)
        try:
            matches = bool(password) and await self.sources.site().sign_in(account, password)
        except ConfigError:
            raise ForbiddenError(_NO_SIGN_IN) from None
        except OutcomeUnknownError:
            raise RetryLaterError("Hacker News gave no answer; try again in a minute", after_s=60) from None
        if not matches:
            raise UnverifiedError("that name and password don't match at Hacker News")
        return await by.commit(lambda tx: self.visitors.begin(account, tx, replaces=replaces), across=True)

    @_operation("hackernews.signed_out", verb="sign-out", needs="public")
    async def sign_out(self, by: Operator) -> None:
        """End the caller's session, for copies of its cookie too; nothing happens without one."""
        caller = by.caller
        if isinstance(caller, VisitorCaller):
            await by.commit(
                lambda tx: self.visitors.end(caller.session_id, tx), subject=caller.name, across=True
            )

    # -- acts of operators ------------------------------------------------------------------------

    @_operation("hackernews.stories_hidden", verb="hide", needs="admin", subject="reader")
    async def hide(self, by: Operator, reader: str, story_ids: Sequence[int]) -> int:
        """Hide up to 400 stories on a reader's behalf; return how many were not hidden before."""
        return await by.commit(
            lambda tx: self.hides.add(reader, story_ids, tx), details={"storyIds": list(story_ids)}
        )

    @_operation("hackernews.story_unhidden", verb="unhide", needs="admin", subject="reader")
    async def unhide(self, by: Operator, reader: str, story_id: int) -> bool:
        """Show a story again on a reader's behalf; False where it was not hidden."""
        return await by.commit(
            lambda tx: self.hides.remove(reader, story_id, tx), details={"storyId": story_id}
        )

    @_operation("hackernews.worker_requested", verb="run", needs="admin")
    async def run_worker(self, by: Operator) -> StoryRound:
        """Run a round of the worker now; RetryLaterError while another process runs one."""
        self.sources.require_enabled()
        await by.append()
        return await self.worker.run()

    @_operation("hackernews.cache_cleared", verb="clear", needs="admin")
    async def clear_cache(self, by: Operator) -> None:
        """Forget the cached list of every timespan, in all processes."""
        await by.commit(self.cache.clear)
        self.cache.forget()

    @_operation("hackernews.backfill_requested", verb="backfill", needs="admin")
    async def backfill(
        self, by: Operator, *, first_id: int, last_id: int, report: Report | None = None
    ) -> BackfillProgress:
        """Fetch the missing stories of a range of ids; goes on where an interrupted back-fill ended."""
        self.sources.require_enabled()
        await by.append(details={"from": first_id, "to": last_id})
        return await self.backfills.run(first_id, last_id, report=report)
