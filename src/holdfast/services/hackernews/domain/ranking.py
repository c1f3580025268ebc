"""Ranked lists of stories: highest score first, then newest id; merged, patched and cut to size."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from holdfast.services.hackernews.domain.spans import KEPT_MAX

# A list must fit a document: 1 MiB as Firestore counts it, less room for the other fields.
LIST_BYTES_MAX: Final = 1_000_000
_FIELD_BYTES: Final = 100  # names, numbers and the map itself, of one story


class RankedStory(msgspec.Struct, frozen=True):
    """A story as lists have it; `time` is in epoch milliseconds."""

    by: str
    descendants: int
    id: int
    score: int
    time: int
    title: str
    url: str = ""

    @property
    def stored_bytes(self) -> int:
        """An upper bound of its size in a document."""
        return _FIELD_BYTES + len(self.by.encode()) + len(self.title.encode()) + len(self.url.encode())


def rank_key(story: RankedStory) -> tuple[int, int]:
    """The sort key of the order that every list has: score descending, then newest id."""
    return -story.score, -story.id


def rank(stories: Iterable[RankedStory]) -> list[RankedStory]:
    """Order stories and keep the best, as many as a cache document holds."""
    kept, size = [], 0
    for story in sorted(stories, key=rank_key)[:KEPT_MAX]:
        size += story.stored_bytes
        if size > LIST_BYTES_MAX:
            break
        kept.append(story)
    return kept


def merge(
    kept: Iterable[RankedStory],
    changed: Iterable[RankedStory],
    *,
    cutoff_ms: int,
    removed: Collection[int] = (),
) -> list[RankedStory]:
    """Add and replace stories of a span's list, drop those removed or too old for it, and rank the rest.

    Example: `merge(year, day, cutoff_ms=SPANS["Year"].cutoff_ms(now_ms))`
    """
    by_id = {story.id: story for story in kept}
    by_id.update((story.id, story) for story in changed)
    return rank(s for s in by_id.values() if s.time > cutoff_ms and s.id not in removed)
