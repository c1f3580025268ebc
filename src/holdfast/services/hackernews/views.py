"""The service's console page, its rounds and cached lists, and its health."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from holdfast.service import Health, Page, PageRequest
from holdfast.services.hackernews.models import StoryRound
from holdfast.services.hackernews.operations import HackerNews

ROWS: Final = 20
# Rounds come every half hour: after so long without one, something is wrong.
LATE_S: Final = 3 * 3_600


def pages_of(operations: HackerNews) -> list[Page]:
    async def worker(ask: PageRequest) -> Mapping[str, Any]:
        rounds = await operations.rounds(limit=ROWS)
        return {
            "rounds": rounds, "enabled": operations.settings.enabled, "spans": await operations.spans(),
            "health": judge_rounds(operations, rounds), "gap": rounds[0].gap if rounds else None,
            "under_way": rounds[0] if rounds and rounds[0].status == "running" else None,
        }  # fmt: skip

    return [
        Page(
            path="", title="Hacker News", template="worker.html", data=worker, live=("hackernews",),
            platform=True,
        )
    ]  # fmt: skip


def health_of(operations: HackerNews) -> Callable[[], Awaitable[Health]]:
    """Return the service's health: whether rounds come and succeed."""

    async def health() -> Health:
        return judge_rounds(operations, await operations.rounds(limit=3))

    return health


def judge_rounds(operations: HackerNews, rounds: list[StoryRound]) -> Health:
    """Degraded when the last rounds failed, or none came for hours; fine where nothing is to be fetched."""
    if not operations.settings.enabled or not rounds:
        return Health()
    reasons = []
    if len(rounds) >= 2 and all(one.status == "failed" for one in rounds[:2]):
        reasons.append(f"the last rounds failed: {rounds[0].error}")
    if operations.clock.now() - rounds[0].started_at > timedelta(seconds=LATE_S):
        reasons.append("no round began for hours; is `holdfast work` running, and the schedule enabled?")
    return Health(status="degraded" if reasons else "ok", reasons=tuple(reasons))
