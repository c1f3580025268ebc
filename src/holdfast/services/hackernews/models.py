"""Documents of the service: stories, readers with what they hid, and the cached list of each timespan.

{env}-stories/{0042345678}          worker and back-fill write, spans are computed from it
{env}-cache/{Day}                   the best 2,000 stories of a span, for all processes
{env}-users/{name}                  empty; below it one document for each hidden story
{env}-users/{name}/hidden/{42345678}
{env}-readers/{name}                tells processes that a reader's hidden stories changed
{env}-rounds/{id}                   what each round of the worker did
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, field

from holdfast.kit.cache import CacheFields
from holdfast.model import (
    MEMBERS_READ,
    SERVICE_ONLY,
    Document,
    Index,
    Retention,
    UlidId,
    ZeroPaddedId,
    document,
)
from holdfast.services.hackernews.domain.ranking import RankedStory

STORY_ID_MAX: Final = 9_999_999_999
USER_PATTERN: Final = r"^[A-Za-z0-9_-]{1,40}$"
StoryId = Annotated[int, Meta(ge=0, le=STORY_ID_MAX)]


@document(
    "{env}-stories/{key}",
    id=ZeroPaddedId("id", width=10),
    path_only=["key"],
    indexes=[
        Index("time", "updated"),
        Index("updated", "time"),
        Index("-score", "-id", "-time"),
        Index("-id"),
    ],
    access=SERVICE_ONLY,
)
class Story(Document):
    """A story as Hacker News has it; `updated` is when it was last fetched, never before `time`."""

    key: str = ""
    by: str
    descendants: int = 0
    id: StoryId
    kids: list[int] = []
    score: int
    time: datetime
    title: str
    url: str = ""
    updated: datetime


@document("{env}-users/{name}", path_only=["name"], access=SERVICE_ONLY)
class Reader(Document):
    """A reader who hid something; the document itself is empty."""

    name: Annotated[str, Meta(pattern=USER_PATTERN)]


@document(
    "{env}-users/{name}/hidden/{story_id}",
    path_only=["name", "story_id"],
    indexes=[Index("-added_at")],
    access=SERVICE_ONLY,
)
class HiddenStory(Document, rename="camel"):
    """A story that a reader hid; `added_at` is in epoch milliseconds."""

    name: Annotated[str, Meta(pattern=USER_PATTERN)]
    story_id: str
    added_at: int


@document("{env}-readers/{name}", path_only=["name"], access=SERVICE_ONLY)
class ReaderState(Document, rename="camel"):
    """The last change of a reader's hidden stories, by which a process knows whether it missed one.

    `last_added_at` grows with every story hidden, `removals` with every one shown again.
    """

    name: Annotated[str, Meta(pattern=USER_PATTERN)]
    last_added_at: int = 0
    removals: int = 0


@document("{env}-cache/{key}", path_only=["key"], access=SERVICE_ONLY)
class CachedSpan(CacheFields):
    """The best stories of a timespan; `cached_at_ms` is the time of the query that found them."""

    key: str
    value: list[RankedStory] = field(name="stories")
    cached_at_ms: int = field(name="cachedAt")


class GapRange(msgspec.Struct, frozen=True):
    """Ids among which stories may be missing: nothing listed reaches back to them any more."""

    first_id: int
    last_id: int


@document(
    "{env}-rounds/{id}",
    id=UlidId(),
    indexes=[Index("-started_at")],
    retention=Retention("started_at", after_s=30 * 86_400),
    access=MEMBERS_READ,
)
class StoryRound(Document, rename="camel"):
    """One round of the worker, written as it goes on.

    `done` of `total` items were fetched; `refreshed` counts by tier. `retry` are the items that failed, with
    how often in a row: the next round tries them again.
    """

    id: str = ""
    started_at: datetime
    finished_at: datetime | None = None
    status: Literal["running", "done", "failed"] = "running"
    phase: str = "lists"
    total: int = 0
    done: int = 0
    new: int = 0
    refreshed: dict[str, int] = {}
    gone: int = 0
    other: int = 0
    failed: int = 0
    retry: dict[str, int] = {}
    gap: GapRange | None = None
    reads: int = 0
    writes: int = 0
    ms: int = 0
    error: str = ""


DOCUMENTS: Final[tuple[type[Document], ...]] = (
    CachedSpan, HiddenStory, Reader, ReaderState, Story, StoryRound,
)  # fmt: skip
