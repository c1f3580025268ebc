"""Which stories of a ranked list a reader asked for: search, filters, mutes, hidden ones, the page."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from holdfast.services.hackernews.domain.ranking import RankedStory
from holdfast.services.hackernews.domain.spans import PAGE_MAX

Words = Annotated[tuple[Annotated[str, Meta(max_length=100)], ...], Meta(max_length=200)]


class StoriesQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A request for stories. `timespan` is any text: an unknown one is All.

    `q` are words that a title must all contain, `domain` a host or the end of one, `by` an author.

    Example: `StoriesQuery(timespan="Week", q="rust sqlite", min_score=100, mute_domains=("example.com",))`
    """

    timespan: str = "All"
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX
    skip: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    q: Annotated[str, Meta(max_length=200)] = ""
    domain: Annotated[str, Meta(max_length=253)] = ""
    by: Annotated[str, Meta(max_length=100)] = ""
    min_score: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    mute_words: Words = ()
    mute_domains: Words = ()

    @property
    def filtered(self) -> bool:
        """Whether it leaves out stories of the span by something other than hiding."""
        return bool(
            self.q.strip() or self.domain or self.by or self.min_score or self.mute_words or self.mute_domains
        )


def domain_of(url: str) -> str:
    """Return the host of a web address without `www.`; empty where there is none.

    Example: `domain_of("https://www.example.com/a")` gives `example.com`
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ""
    return host.removeprefix("www.") if parts.scheme in ("http", "https") else ""


def filter_stories(stories: Iterable[RankedStory], query: StoriesQuery) -> list[RankedStory]:
    """Return the stories that the query's search, filters and mutes leave."""
    tests = _tests(query)
    return [story for story in stories if all(test(story) for test in tests)]


def _tests(query: StoriesQuery) -> list[Callable[[RankedStory], bool]]:
    words, muted = query.q.casefold().split(), [one.casefold() for one in query.mute_words if one.strip()]
    domain, author = query.domain.casefold().removeprefix("www."), query.by.casefold()
    muted_domains = [one.casefold().removeprefix("www.") for one in query.mute_domains if one.strip()]
    tests: list[Callable[[RankedStory], bool]] = []
    if query.min_score:
        tests.append(lambda story: story.score >= query.min_score)
    if author:
        tests.append(lambda story: story.by.casefold() == author)
    if words or muted:
        tests.append(lambda story: _title_passes(story.title.casefold(), words, muted))
    if domain:
        tests.append(lambda story: _is_under(domain_of(story.url), domain))
    if muted_domains:
        tests.append(lambda story: not any(_is_under(domain_of(story.url), one) for one in muted_domains))
    return tests


def _title_passes(title: str, words: Sequence[str], muted: Sequence[str]) -> bool:
    return all(word in title for word in words) and not any(word in title for word in muted)


def _is_under(host: str, domain: str) -> bool:
    return host == domain or host.endswith("." + domain)


def visible_stories(stories: Iterable[RankedStory], hidden: Container[int]) -> list[RankedStory]:
    """Return the stories that are not hidden, in their order."""
    return [story for story in stories if story.id not in hidden]
