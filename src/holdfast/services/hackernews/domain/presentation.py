"""How stories are shown to readers: links that are safe to follow, and how hot a score is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from holdfast.services.hackernews.domain.items import safe_url
from holdfast.services.hackernews.domain.ranking import RankedStory
from holdfast.services.hackernews.domain.selection import domain_of

ITEM_URL: Final = "https://news.ycombinator.com/item?id="
# Scores from which a story is shown as hotter.
_HEATS: Final = (100, 250, 500, 1_000)


class StoryCard(msgspec.Struct, frozen=True, rename="camel"):
    """A story as readers get it; `url` is a web address, that of its discussion where it has no other.

    `time` is in epoch milliseconds.
    """

    id: int
    title: str
    url: str
    domain: str
    by: str
    score: int
    descendants: int
    time: int
    comments_url: str

    @property
    def heat(self) -> int:
        """From 0 to 4, by score."""
        return sum(self.score >= least for least in _HEATS)


class StoriesResponse(msgspec.Struct, frozen=True, rename="camel"):
    """A page of stories; `nextSkip` continues after it, null at the end."""

    timespan: str
    stories: Sequence[StoryCard]
    skip: int
    next_skip: int | None
    cached_at: datetime


def story_card(story: RankedStory) -> StoryCard:
    """Return a story as readers get it; whatever is stored, its links lead to web addresses alone."""
    discussion, url = f"{ITEM_URL}{story.id}", safe_url(story.url)
    domain = domain_of(url)
    return StoryCard(
        id=story.id, title=story.title, url=url if domain else discussion, domain=domain, by=story.by,
        score=story.score, descendants=story.descendants, time=story.time, comments_url=discussion,
    )  # fmt: skip
