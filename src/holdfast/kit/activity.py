"""The pulse: what all processes did in each minute, kept for a day; an hour of it costs 60 reads by key.

Each working process adds what it did to the document of the running minute every few seconds, and nothing
while nothing happens. Figures for eyes, not for accounts: a killed process takes its last seconds along.
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

BEAT_S: Final = 5.0
COUNTED: Final = ("handled", "delivered", "failed", "dead")


@document(
    "holdfast_pulses/{id}",
    id=ProvidedId(pattern=r"[0-9]{12}"),
    tenant="tenant_id",
    retention=Retention("at", after_s=86_400),
    access=MEMBERS_READ,
)
class ActivityMinute(Document, rename="camel"):
    """One minute: messages handled, attempts by their outcome, and the longest anything due has waited."""

    id: str
    tenant_id: str = NO_TENANT
    at: datetime
    handled: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    waited_s: float = 0.0


class ActivityRecorder:
    """Writes down what this process does; `counts` are its totals so far, `waited_s` the age of what is due.

    Example: `await PulseKeeper(store, counts=totals, waited_s=oldest).run(stop)`
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
        self._told = dict.fromkeys(COUNTED, 0)
        self.last_turn_at: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; what was done up to then is written down."""
        while not stop.is_set():
            await self.record()
            await wait_for_wake(self._clock, BEAT_S, stop=stop)
        await self.record()

    async def record(self) -> None:
        """Add what was done since the last beat to the running minute."""
        self.last_turn_at = self._clock.now()
        totals = dict(self._counts())
        grown: dict[str, Any] = {
            name: totals[name] - self._told[name] for name in COUNTED if totals[name] > self._told[name]
        }
        waited_s = round(await self._waited_s(), 1)
        if not grown and not waited_s:
            return
        at = self.last_turn_at.replace(second=0, microsecond=0)
        changes: dict[str, Any] = {name: Increment(count) for name, count in grown.items()}
        pulse = ActivityMinute(id=_id(at), at=at, waited_s=waited_s, **grown)
        try:
            await self._store.commit(upsert(pulse, {**changes, "waited_s": Maximum(waited_s)}))
        except (ConflictError, RetryLaterError):
            return
        self._told = totals


async def recent(store: Store, minutes: int = 60) -> Sequence[ActivityMinute]:
    """The last minutes, oldest first, with nothing in those in which nothing happened."""
    now = store.clock.now().replace(second=0, microsecond=0)
    times = [now - timedelta(minutes=back) for back in range(minutes - 1, -1, -1)]
    found = await store.tenant(NO_TENANT).get_many(ActivityMinute, [_id(at) for at in times])
    return [
        ActivityMinute(id=_id(at), at=at) if one is None else one.doc
        for at, one in zip(times, found, strict=True)
    ]


def _id(at: datetime) -> str:
    return at.strftime("%Y%m%d%H%M")
