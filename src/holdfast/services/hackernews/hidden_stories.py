"""The stories that readers hid: added, removed, listed, and looked up for a page.

A reader may have hidden 100,000 and more, while a page asks about 2,000 at most: only those are looked up,
and a process remembers them. The reader's `ReaderState` says whether another process changed anything since.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.errors import BadIdError, InvalidError
from holdfast.services.hackernews.models import STORY_ID_MAX, USER_PATTERN, HiddenStory, Reader, ReaderState
from holdfast.store import Query, Store, Transaction, delete, put

READERS_MAX: Final = 500
KNOWN_MAX: Final = 20_000  # ids of one reader; five lists have 10,000 at most
ADDED_MAX: Final = 10_000  # in one call
COMMIT_MAX: Final = 400
NEWS_MAX: Final = 500
ATTEMPTS: Final = 20


class HiddenEntry(msgspec.Struct, frozen=True, rename="camel"):
    """A hidden story and when it was hidden, in epoch milliseconds."""

    id: int
    added_at: int


class HiddenPage(msgspec.Struct, frozen=True):
    """Hidden stories, the latest first, and the cursor that continues after them."""

    hidden: list[HiddenEntry]
    cursor: str | None = None


class KnownStories:
    """What this process knows of one reader's hidden stories, as of the reader's state."""

    def __init__(self, store: Store, state: ReaderState) -> None:
        self._store, self._reader = store, state.name
        self.last_added_at, self.removals = state.last_added_at, state.removals
        self.hidden: dict[int, bool] = {}

    async def among(self, story_ids: Sequence[int]) -> set[int]:
        """Return those of the stories that the reader hid; only ids not asked about before are looked up."""
        unknown = [one for one in story_ids if one not in self.hidden]
        if unknown:
            found = await self._store.get_many(HiddenStory, [(self._reader, str(one)) for one in unknown])
            for one, there in zip(unknown, found, strict=True):
                # What was learnt meanwhile is newer.
                self.hidden.setdefault(one, there is not None)
        return {one for one in story_ids if self.hidden[one]}


class HiddenStories:
    """Hidden stories by reader.

    Example: `await hidden.add("pg", [8863]); assert await hidden.among("pg", [8863, 8864]) == {8863}`
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store, store.clock
        self._known: dict[str, KnownStories] = {}

    async def add(self, reader: str, story_ids: Sequence[int], transaction: Transaction | None = None) -> int:
        """Hide stories; return how many were not hidden before. One hidden already keeps its time.

        In the caller's transaction, if given, and then at most `COMMIT_MAX`.
        """
        check_reader(reader)
        ids = list(dict.fromkeys(check_story_id(one) for one in story_ids))
        most = ADDED_MAX if transaction is None else COMMIT_MAX
        if len(ids) > most:
            raise InvalidError(f"hide at most {most:,} stories at once, not {len(ids):,}", "hidden")
        if transaction is not None:
            return await self._add(transaction, reader, ids)
        added = 0
        for start in range(0, len(ids), COMMIT_MAX):
            part = ids[start : start + COMMIT_MAX]
            added += await self._store.transact(
                partial(self._add, reader=reader, ids=part), attempts=ATTEMPTS
            )
        return added

    async def _add(self, tx: Transaction, reader: str, ids: Sequence[int]) -> int:
        state = await self._state(tx, reader)
        # All changes of a reader's hidden stories write its state, which this transaction has read.
        found = await self._store.get_many(HiddenStory, [(reader, str(one)) for one in ids])
        new = [one for one, there in zip(ids, found, strict=True) if there is None]
        if new:
            # Strictly increasing, so that other processes find what was added since they looked.
            at = max(self._clock.now_us() // 1_000, state.last_added_at + 1)
            tx.write(put(Reader(name=reader)), put(replace(state, last_added_at=at)))
            tx.write(*(put(HiddenStory(name=reader, story_id=str(one), added_at=at)) for one in new))
        return len(new)

    async def remove(self, reader: str, story_id: int, transaction: Transaction | None = None) -> bool:
        """Show a story again; False where it was not hidden. In the caller's transaction, if given."""
        if transaction is None:
            return await self._store.transact(partial(self.remove, reader, story_id), attempts=ATTEMPTS)
        key = (check_reader(reader), str(check_story_id(story_id)))
        state = await self._state(transaction, reader)
        if await transaction.get(HiddenStory, *key) is None:
            return False
        transaction.write(put(replace(state, removals=state.removals + 1)), delete(HiddenStory, *key))
        return True

    async def page(self, reader: str, *, limit: int = 100, cursor: str | None = None) -> HiddenPage:
        """Return a reader's hidden stories, the latest first."""
        query = Query(HiddenStory).under(check_reader(reader)).order_by("-added_at").limit(limit)
        page = await self._store.query(query.after(cursor))
        return HiddenPage([HiddenEntry(int(one.story_id), one.added_at) for one in page.docs], page.cursor)

    async def among(self, reader: str, story_ids: Sequence[int]) -> set[int]:
        """Return those of the stories that the reader hid, on whatever device."""
        return await (await self.known(reader)).among(story_ids)

    async def known(self, reader: str) -> KnownStories:
        """Return what is known of the reader's hidden stories, brought up to date."""
        stored = await self._store.get(ReaderState, check_reader(reader))
        state = ReaderState(name=reader) if stored is None else stored.doc
        known = self._known.get(reader)
        if known is None or known.removals != state.removals or len(known.hidden) > KNOWN_MAX:
            return self._remember(reader, state)
        if known.last_added_at >= state.last_added_at:
            return known
        news = Query(HiddenStory).under(reader).where("added_at", ">", known.last_added_at)
        page = await self._store.query(news.order_by("-added_at").limit(NEWS_MAX))
        if page.cursor is not None:
            return self._remember(reader, state)
        known.hidden.update((int(one.story_id), True) for one in page.docs)
        known.last_added_at = state.last_added_at
        return known

    def forget(self) -> None:
        """Drop what this process knows, as a new process begins."""
        self._known.clear()

    def _remember(self, reader: str, state: ReaderState) -> KnownStories:
        self._known.pop(reader, None)
        known = self._known[reader] = KnownStories(self._store, state)
        for oldest in list(itertools.islice(self._known, max(0, len(self._known) - READERS_MAX))):
            del self._known[oldest]
        return known

    async def _state(self, tx: Transaction, reader: str) -> ReaderState:
        stored = await tx.get(ReaderState, reader)
        return ReaderState(name=reader) if stored is None else stored.doc


def check_reader(name: str) -> str:
    """Return a reader's name; BadIdError for one that Hacker News does not allow."""
    if not re.fullmatch(USER_PATTERN[1:-1], name):
        raise BadIdError("a name has 1 to 40 letters, digits, '-' and '_'", "reader")
    return name


def check_story_id(story_id: int) -> int:
    """Return a story's id; InvalidError for one that can't be one."""
    if isinstance(story_id, bool) or not 0 <= story_id <= STORY_ID_MAX:
        raise InvalidError(f"a story's id is a whole number from 0 to {STORY_ID_MAX}", "hidden")
    return story_id
