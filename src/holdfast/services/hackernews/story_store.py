"""Stories in the store: which are there, which are stale, and the writes that keep fetched ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.clock import from_us
from holdfast.errors import HoldfastError
from holdfast.ids import zero_padded
from holdfast.providers.hackernews import Item
from holdfast.services.hackernews.domain.items import KIDS_MAX, judge, ranked_story
from holdfast.services.hackernews.domain.ranking import RankedStory
from holdfast.services.hackernews.domain.spans import WORKER_BATCH_MAX, RefreshTier
from holdfast.services.hackernews.models import Story
from holdfast.services.hackernews.span_query import ranked
from holdfast.store import Query, Store, Write, delete, put

Fetched = tuple[int, Item | HoldfastError | None]


class FetchedBatch(msgspec.Struct, frozen=True):
    """What fetched items mean for the store and the cached lists."""

    stories: list[Story]
    gone: list[int]
    other: list[int]
    failed: list[int]

    @property
    def ranked(self) -> list[RankedStory]:
        return [ranked(story) for story in self.stories]

    def writes(self) -> list[Write]:
        """The writes that keep the stories, and delete those that Hacker News took away."""
        return [*map(put, self.stories), *(delete(Story, key_of(one)) for one in self.gone)]


def read_batch(items: Iterable[Fetched], *, now: datetime) -> FetchedBatch:
    """Sort fetched items by what to do with them; one that is missing or failed is for the next time."""
    batch = FetchedBatch([], [], [], [])
    for item_id, item in items:
        verdict = "missing" if isinstance(item, HoldfastError) else judge(item)
        if verdict == "missing" or item is None or isinstance(item, HoldfastError):
            batch.failed.append(item_id)
        elif verdict == "story":
            batch.stories.append(_story(item, now))
        else:
            (batch.gone if verdict == "gone" else batch.other).append(item_id)
    return batch


def _story(item: Item, now: datetime) -> Story:
    story = ranked_story(item)
    time = from_us(story.time * 1_000)
    # Never before its own time, which a clock that is behind would make it: stale ones are found by both.
    return Story(
        by=story.by, descendants=story.descendants, id=story.id, kids=item.kids[:KIDS_MAX], score=story.score,
        time=time, title=story.title, url=story.url, updated=max(now, time),
    )  # fmt: skip


def key_of(story_id: int) -> str:
    """Return the id of a story's document.

    Example: `key_of(42345678)` gives `0042345678`
    """
    return zero_padded(story_id, 10)


async def stored_stories(store: Store, ids: Sequence[int]) -> dict[int, RankedStory]:
    """Return the stored stories among these ids."""
    found = await store.get_many(Story, [key_of(one) for one in ids])
    return {one.doc.id: ranked(one.doc) for one in found if one is not None}


async def stale_stories(store: Store, tier: RefreshTier, *, now: datetime) -> list[int]:
    """Return the ids of a tier's stories that are due, the longest not updated first."""
    assert tier.span.length_s is not None
    since, before = now - timedelta(seconds=tier.span.length_s), now - timedelta(seconds=tier.stale_s)
    # A story is never updated before its own time, so the lower bound on `updated` leaves none out; without
    # it the scan would begin at all the stories that are too old.
    query = Query(Story).where("time", ">", since).where("updated", ">", since)
    query = query.where("updated", "<", before).order_by("updated").limit(WORKER_BATCH_MAX)
    return [story.id for story in (await store.query(query)).docs]


async def latest_story_id(store: Store) -> int | None:
    """Return the largest id of a stored story."""
    page = await store.query(Query(Story).order_by("-id").limit(1))
    return page.docs[0].id if page.docs else None
