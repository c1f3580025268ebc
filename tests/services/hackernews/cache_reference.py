"""The cached lists as plain dictionaries: what a reader should see, said as simply as it can be.

Nothing here waits, retries or shares code with the service: two levels, a time to live from the time of the
query, the day merged into the longer lists, stories never older than the list.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

MINUTE = 60
LENGTH_S = {"Day": 86_400, "Week": 7 * 86_400, "Month": 28 * 86_400, "Year": 365 * 86_400, "All": 10**12}
TTL_S = {"Day": 1_800, "Week": 2 * 86_400, "Month": 7 * 86_400, "Year": 30 * 86_400, "All": 30 * 86_400}


@dataclass(frozen=True)
class Known:
    """A story as a list has it."""

    id: int
    score: int
    at_s: float


@dataclass(frozen=True)
class Listed:
    """A list, the time of the query behind it, and when a process last compared it with the store."""

    stories: tuple[Known, ...]
    cached_at_s: float
    seen_s: float = 0.0


@dataclass
class CacheReference:
    """`stored` are the stories there are; `shared` is the level of all processes, `own` each one's memory."""

    kept_max: int
    now_s: float
    stored: dict[int, Known] = field(default_factory=dict)
    shared: dict[str, Listed] = field(default_factory=dict)
    own: dict[int, dict[str, Listed]] = field(default_factory=dict)

    def _best(self, span: str, stories: dict[int, Known]) -> tuple[Known, ...]:
        young = [one for one in stories.values() if one.at_s > self.now_s - LENGTH_S[span]]
        return tuple(sorted(young, key=lambda one: (one.score, one.id), reverse=True)[: self.kept_max])

    def _merged(self, span: str, first: tuple[Known, ...], second: tuple[Known, ...]) -> tuple[Known, ...]:
        return self._best(span, {one.id: one for one in (*first, *second)})

    def read(self, process: int, span: str) -> tuple[Known, ...]:
        """What this process shows of a span now."""
        listed = self._get(process, span)
        day = self._get(process, "Day")
        return self._merged(span, listed.stories, () if span == "Day" else day.stories)

    def _get(self, process: int, span: str) -> Listed:
        mine = self.own.setdefault(process, {})
        known = mine.get(span)
        if known is not None and self.now_s - known.seen_s < MINUTE and self._fresh(span, known):
            return known
        found = self.shared.get(span)
        if found is None or not self._fresh(span, found):
            found = self.shared[span] = Listed(self._best(span, self.stored), self.now_s)
            for longer in [one for one in self.shared if one != "Day"] if span == "Day" else []:
                self._put(process, longer, self._merged(longer, self.shared[longer].stories, found.stories))
        mine[span] = replace(found, seen_s=self.now_s)
        return mine[span]

    def _fresh(self, span: str, listed: Listed) -> bool:
        return self.now_s - listed.cached_at_s < TTL_S[span]

    def _put(self, process: int, span: str, stories: tuple[Known, ...]) -> None:
        before = self.shared[span]
        if stories != before.stories:
            self.shared[span] = replace(before, stories=stories)
            self.own.setdefault(process, {})[span] = replace(self.shared[span], seen_s=self.now_s)

    def apply(self, process: int, changed: list[Known], removed: set[int]) -> None:
        """What a round of the worker does: the store first, then every list there is."""
        for one in changed:
            self.stored[one.id] = one
        for one_id in removed:
            self.stored.pop(one_id, None)
        for span, listed in list(self.shared.items()) if changed or removed else []:
            left = tuple(one for one in listed.stories if one.id not in removed)
            self._put(process, span, self._merged(span, left, tuple(changed)))

    def clear(self, process: int) -> None:
        self.shared.clear()
        self.own[process] = {}

    def crash(self, process: int) -> None:
        self.own[process] = {}
