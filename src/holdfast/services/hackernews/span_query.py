"""The best stories of a timespan, from the stored stories by index."""

from __future__ import annotations

from typing import Final

from holdfast.clock import from_us, to_us
from holdfast.services.hackernews.domain.ranking import RankedStory, rank
from holdfast.services.hackernews.domain.spans import KEPT_MAX, Span
from holdfast.services.hackernews.models import Story
from holdfast.store import Query, Store

# Where all of a span are kept anyway they are read by time; of more, only the best are, by score.
RANGE_MAX: Final = KEPT_MAX
_BY_SCORE: Final = Query(Story).order_by("-score", "-id", "-time").limit(KEPT_MAX)


async def best_stories(store: Store, span: Span, *, now_ms: int) -> list[RankedStory]:
    """Return the span's best stories in their order, as many as are kept."""
    if span.length_s is None:
        return rank([ranked(story) for story in (await store.query(_BY_SCORE)).docs])
    cutoff = from_us(span.cutoff_ms(now_ms) * 1_000)
    recent = Query(Story).where("time", ">", cutoff).order_by("-time", "-updated").limit(KEPT_MAX)
    if await store.count(recent) <= RANGE_MAX:
        return rank([ranked(found.doc) async for found in store.scan(recent)])
    # A span with so many stories fills the list before much of the index is read.
    return rank([ranked(story) for story in (await store.query(_BY_SCORE.where("time", ">", cutoff))).docs])


def ranked(story: Story) -> RankedStory:
    """Return a stored story as lists have it."""
    return RankedStory(
        by=story.by, descendants=story.descendants, id=story.id, score=story.score,
        time=to_us(story.time) // 1_000, title=story.title, url=story.url,
    )  # fmt: skip
