"""Activity of all processes per minute, kept for a day, and per hour, kept for eight days.

A chart reads by key: 60 minutes, 24 hours or 168. Each working process adds its counts to the documents of
the current minute and hour in one commit every few seconds, and nothing while idle. For charts, not for
accounting: a killed process loses its last seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, TypeVar

from holdfast.errors import ConflictError, RetryLaterError
from holdfast.kit import NO_TENANT
from holdfast.kit.worker_loop import wait_for_wake
from holdfast.model import MEMBERS_READ, Document, ProvidedId, Retention, document
from holdfast.store import Increment, Maximum, Store, upsert

RECORD_EVERY_S: Final = 5.0
HOUR: Final = timedelta(hours=1)
COUNTED: Final = ("handled", "delivered", "failed", "dead")

A = TypeVar("A", bound="ActivityFields")


class ActivityFields(Document, rename="camel"):
    """What happened: messages handled, attempts by outcome, and the longest wait of anything due."""

    id: str
    tenant_id: str = NO_TENANT
    at: datetime
    handled: int = 0
    delivered: int = 0
    failed: int = 0
    dead: int = 0
    waited_s: float = 0.0

    step: ClassVar[timedelta]
    id_format: ClassVar[str]

    @classmethod
    def start(cls, at: datetime) -> datetime:
        """The start of the minute or hour that this moment is in, in UTC."""
        in_utc = at.astimezone(UTC).replace(second=0, microsecond=0)
        return in_utc if cls.step < HOUR else in_utc.replace(minute=0)


@document(
    "holdfast_pulses/{id}",
    id=ProvidedId(pattern=r"[0-9]{12}"),
    tenant="tenant_id",
    retention=Retention("at", after_s=86_400),
    access=MEMBERS_READ,
)
class ActivityMinute(ActivityFields, rename="camel"):
    """The activity of one minute."""

    step: ClassVar[timedelta] = timedelta(minutes=1)
    id_format: ClassVar[str] = "%Y%m%d%H%M"


@document(
    "holdfast_activity_hours/{id}",
    id=ProvidedId(pattern=r"[0-9]{10}"),
    tenant="tenant_id",
    retention=Retention("at", after_s=8 * 86_400),
    access=MEMBERS_READ,
)
class ActivityHour(ActivityFields, rename="camel"):
    """The activity of one hour."""

    step: ClassVar[timedelta] = HOUR
    id_format: ClassVar[str] = "%Y%m%d%H"


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
        """Add what was done since the last record to the current minute and hour."""
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
        changes: dict[str, Any] = {name: Increment(count) for name, count in added.items()}
        changes["waited_s"] = Maximum(waited_s)
        fields, now = {"waited_s": waited_s, **added}, self.last_turn_at
        try:
            await self._store.commit(
                upsert(_activity(ActivityMinute, now, **fields), changes),
                upsert(_activity(ActivityHour, now, **fields), changes),
            )
        except (ConflictError, RetryLaterError):
            return
        self._recorded = totals


async def recent(store: Store, kind: type[A], count: int) -> Sequence[A]:
    """The last minutes or hours, oldest first; empty ones where nothing happened.

    Example: `await recent(store, ActivityMinute, 60)`
    """
    now = store.clock.now()
    empty = [_activity(kind, now - age * kind.step) for age in range(count - 1, -1, -1)]
    stored = await store.tenant(NO_TENANT).get_many(kind, [one.id for one in empty])
    return [one if found is None else found.doc for one, found in zip(empty, stored, strict=True)]


def _activity(kind: type[A], moment: datetime, **fields: Any) -> A:
    at = kind.start(moment)
    return kind(id=at.strftime(kind.id_format), at=at, **fields)
