"""Activity per minute of all processes, kept for a day; an hour of it costs 60 reads by key.

Each working process adds its counts to the document of the current minute every few seconds, and nothing
while idle. For charts, not for accounting: a killed process loses its last seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from holdfast.errors import ConflictError, RetryLaterError
from holdfast.kit import NO_TENANT
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.model import MEMBERS_READ, Document, ProvidedId, Retention, document
from holdfast.store import Increment, Maximum, Store, upsert

RECORD_EVERY_S: Final = 5.0
COUNTED: Final = ("handled", "delivered", "failed", "dead")


@document(
    "holdfast_pulses/{id}",
    id=ProvidedId(pattern=r"[0-9]{12}"),
    tenant="tenant_id",
    retention=Retention("at", after_s=86_400),
    access=MEMBERS_READ,
)
class ActivityMinute(Document, rename="camel"):
    """One minute: messages handled, attempts by outcome, and the longest wait of anything due."""

    id: str
    tenant_id: str = NO_TENANT
    at: datetime
    handled: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    waited_s: float = 0.0


class ActivityRecorder:
    """Records what this process does: `counts` are its totals, `waited_s` the age of the oldest due work.

    Example: `await ActivityRecorder(store, counts=totals, waited_s=oldest).run(stop)`
    """

    def __init__(
        self,
        store: Store,
        *,
        counts: Callable[[], Mapping[str, int]],
        waited_s: Callable[[], Awaitable[float]],
    ) -> None:
        self._store, self._clock = store.tenant(NO_TENANT), store.clock
        self._counts, self._waited_s = counts, waited_s
        self._recorded = dict.fromkeys(COUNTED, 0)
        self.last_turn_at: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Record until `stop` is set, the rest included."""
        while not stop.is_set():
            await self.record()
            await wait_for_wake(self._clock, RECORD_EVERY_S, stop=stop)
        await self.record()

    async def record(self) -> None:
        """Add what was done since the last record to the current minute."""
        self.last_turn_at = self._clock.now()
        totals = dict(self._counts())
        added: dict[str, Any] = {
            name: totals[name] - self._recorded[name]
            for name in COUNTED
            if totals[name] > self._recorded[name]
        }
        waited_s = round(await self._waited_s(), 1)
        if not added and not waited_s:
            return
        at = self.last_turn_at.replace(second=0, microsecond=0)
        changes: dict[str, Any] = {name: Increment(count) for name, count in added.items()}
        activity = ActivityMinute(id=_id(at), at=at, waited_s=waited_s, **added)
        try:
            await self._store.commit(upsert(activity, {**changes, "waited_s": Maximum(waited_s)}))
        except (ConflictError, RetryLaterError):
            return
        self._recorded = totals


async def recent(store: Store, minutes: int = 60) -> Sequence[ActivityMinute]:
    """The last minutes, oldest first; empty ones for minutes without activity."""
    now = store.clock.now().replace(second=0, microsecond=0)
    times = [now - timedelta(minutes=age) for age in range(minutes - 1, -1, -1)]
    stored = await store.tenant(NO_TENANT).get_many(ActivityMinute, [_id(at) for at in times])
    return [
        ActivityMinute(id=_id(at), at=at) if one is None else one.doc
        for at, one in zip(times, stored, strict=True)
    ]


def _id(at: datetime) -> str:
    return at.strftime("%Y%m%d%H%M")
