"""The service's pages in the console: how calendars stand, and one of them with what was done there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.errors import NotFoundError
from holdfast.kit.channels import Watch
from holdfast.service import Page, PageRequest
from holdfast.services.calendar_sync.models import CalendarState, ChannelEvent, SyncedEvent
from holdfast.services.calendar_sync.operations import STANDINGS, CalendarSync
from holdfast.store import Query

ROWS: Final = 50
LIFE_S: Final = 7 * 86_400.0
SOON_S: Final = 86_400.0


class Shown(msgspec.Struct, frozen=True):
    """A calendar as a row shows it: `left` is the share of its channel's life that is still to come."""

    state: CalendarState
    watch: Watch | None
    left: float
    tone: str


class Views:
    """What the pages show."""

    def __init__(self, operations: CalendarSync) -> None:
        self._keeper = operations

    async def calendars(self, ask: PageRequest) -> Mapping[str, Any]:
        operations, look = self._keeper, await self._keeper.look()
        worst = next((one for one in reversed(STANDINGS) if look.by_standing[one]), "fine")
        standing: Any = ask.choice("standing", STANDINGS, default=worst)
        page = await operations.calendars(standing, limit=ROWS, cursor=ask.cursor)
        watches = await operations.channels.watches([doc.calendar_id for doc in page.docs])
        rows = [_shown(doc, watches.get(doc.calendar_id), look.now) for doc in page.docs]
        return {
            "rows": rows, "after": page.cursor, "standing": standing, "standings": STANDINGS,
            "told": look.told(), "health": look.health(), "mappings": operations.directory.entries,
        }  # fmt: skip

    async def calendar(self, ask: PageRequest) -> Mapping[str, Any]:
        operations, calendar_id = self._keeper, ask.path["calendar_id"].lower()
        state = await operations.state_of(calendar_id)
        if state is None:
            raise NotFoundError(f"{calendar_id} is not mapped")
        watches = await operations.channels.watches([calendar_id])
        return {
            "title": calendar_id, "one": _shown(state, watches.get(calendar_id), operations.now()),
            "secondaries": operations.directory.entries.get(calendar_id, ()),
            "events": await operations.page_of(
                Query(SyncedEvent).where("calendar_id", "==", calendar_id).limit(ROWS)
            ),
            "history": await operations.page_of(
                Query(ChannelEvent).where("calendar_id", "==", calendar_id).order_by("-at").limit(20)
            ),
        }  # fmt: skip


def _shown(state: CalendarState, watch: Watch | None, now: datetime) -> Shown:
    current = watch.current if watch is not None else None
    left_s = (current.ends_at - now).total_seconds() if current is not None else 0.0
    return Shown(state, watch, max(0.0, left_s / LIFE_S), "good" if left_s > SOON_S else "warn")


def pages_of(operations: CalendarSync) -> list[Page]:
    """The service's pages."""
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
