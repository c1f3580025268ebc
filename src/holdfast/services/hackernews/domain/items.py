"""What an item of the API is to us: a story to keep, one that is gone, or nothing of interest."""

from __future__ import annotations

import html
from typing import Final, Literal

from holdfast.providers.hackernews import Item
from holdfast.services.hackernews.domain.ranking import RankedStory

URL_CHARS_MAX: Final = 2_048
TITLE_CHARS_MAX: Final = 500
KIDS_MAX: Final = 5_000
STORY_KINDS: Final = ("story", "poll")
Verdict = Literal["story", "gone", "other", "missing"]


def judge(item: Item | None) -> Verdict:
    """Say what became of an item: `missing` ones may come yet, `other` ones are jobs, comments and the like.

    A poll counts as a story: people vote on it and discuss it. A job is an advertisement without votes.
    """
    if item is None:
        return "missing"
    if item.dead or item.deleted:
        return "gone"
    return "story" if item.type in STORY_KINDS and item.title and item.time > 0 else "other"


def ranked_story(item: Item) -> RankedStory:
    """Return an item as lists have it, with plain text and bounded lengths."""
    return RankedStory(
        by=item.by[:100], descendants=max(0, item.descendants), id=item.id, score=max(0, item.score),
        time=item.time * 1_000, title=html.unescape(item.title)[:TITLE_CHARS_MAX], url=safe_url(item.url),
    )  # fmt: skip


def safe_url(url: str) -> str:
    """Return a web address as it is; empty for any other scheme, and for one too long to keep."""
    url = url.strip()
    is_web = url[:8].casefold().startswith(("http://", "https://"))
    return url if is_web and len(url) <= URL_CHARS_MAX else ""
