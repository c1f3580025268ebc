"""The service's console pages: calendars by sync state, and one calendar with its results."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.kit.channels import Watch
from holdfast.service import Page, PageRequest
from holdfast.services.calendar_sync.models import SYNC_STATUSES, CalendarState, ChannelEvent, SyncedEvent
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.store import Query

ROWS: Final = 50
LIFE_S: Final = 7 * 86_400.0
SOON_S: Final = 86_400.0


class CalendarRow(msgspec.Struct, frozen=True):
    """A calendar with its watch; `left` is the remaining share of its channel's life."""

    state: CalendarState
    watch: Watch | None
    left: float
    tone: str


class Views:
    """Data of the pages."""

    def __init__(self, operations: CalendarSync) -> None:
        self._operations, self._engine = operations, operations.engine

    async def calendars(self, ask: PageRequest) -> Mapping[str, Any]:
        report = await self._engine.status()
        worst = next((one for one in reversed(SYNC_STATUSES) if report.by_sync_status[one]), "fine")
        status: Any = ask.choice("status", SYNC_STATUSES, default=worst)
        page = await self._operations.calendars(status, limit=ROWS, cursor=ask.cursor)
        watches = await self._engine.channels.watches([doc.calendar_id for doc in page.docs])
        rows = [_row(doc, watches.get(doc.calendar_id), report.now) for doc in page.docs]
        return {
            "rows": rows, "after": page.cursor, "status": status, "statuses": SYNC_STATUSES,
            "summary": report.response(), "health": report.health(),
            "mappings": self._engine.mappings.entries,
        }  # fmt: skip

    async def calendar(self, ask: PageRequest) -> Mapping[str, Any]:
        calendar_id = ask.path["calendar_id"].lower()
        state = await self._operations.calendar(calendar_id)
        watches = await self._engine.channels.watches([calendar_id])
        return {
            "title": calendar_id, "one": _row(state, watches.get(calendar_id), self._engine.clock.now()),
            "secondaries": self._engine.mappings.entries.get(calendar_id, ()),
            "events": await self._operations.page_of(
                Query(SyncedEvent).where("calendar_id", "==", calendar_id).limit(ROWS)
            ),
            "history": await self._operations.page_of(
                Query(ChannelEvent).where("calendar_id", "==", calendar_id).order_by("-at").limit(20)
            ),
        }  # fmt: skip


def _row(state: CalendarState, watch: Watch | None, now: datetime) -> CalendarRow:
    current = watch.current if watch is not None else None
    left_s = (current.ends_at - now).total_seconds() if current is not None else 0.0
    return CalendarRow(state, watch, max(0.0, left_s / LIFE_S), "good" if left_s > SOON_S else "warn")


def pages_of(operations: CalendarSync) -> list[Page]:
    """Return the service's pages."""
    views = Views(operations)
    live = ("calendar-sync", "channels")
    return [
        Page(
            path="", title="Calendars", template="calendars.html", data=views.calendars, live=live,
            platform=True,
        ),
        Page(
            path="/calendars/{calendar_id}", title="Calendar", template="calendar.html", data=views.calendar,
            live=live, nav=False, platform=True,
        ),
    ]  # fmt: skip
