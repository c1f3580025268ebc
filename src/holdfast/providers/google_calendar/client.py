"""Google Calendar v3: events, their push channels, and the list of calendars."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.clock import Clock
from holdfast.net import HttpSession
from holdfast.providers.credentials import TokenSource
from holdfast.providers.google_calendar.faults import fault_of
from holdfast.providers.google_calendar.types import (
    CalendarEvent,
    CalendarList,
    CalendarListQuery,
    EventPatch,
    EventQuery,
    Events,
    InstanceQuery,
    NewEvent,
    PushChannel,
    SendOptions,
    SendUpdates,
)
from holdfast.providers.rest import Call, CallLimits, RestClient, path_of, query_of

CALENDAR_URL: Final = "https://www.googleapis.com/calendar/v3"
CALENDAR_SCOPE: Final = "https://www.googleapis.com/auth/calendar"


class GoogleCalendar:
    """Calendar v3, as the user whose tokens these are.

    A patch with an `etag` is refused with VersionConflictError when somebody changed the event meanwhile;
    a list whose sync token is too old is refused with FullSyncRequiredError.

    Example:
        calendar = GoogleCalendar(session, tokens, clock=clock)
        async for page in calendar.event_pages("primary", EventQuery(sync_token=saved)):
            ...
    """

    def __init__(
        self,
        session: HttpSession,
        tokens: TokenSource,
        *,
        clock: Clock,
        base_url: str = CALENDAR_URL,
        limits: CallLimits = CallLimits(),
    ) -> None:
        self._rest = RestClient(
            session, base_url, fault_of=fault_of, clock=clock, tokens=tokens, limits=limits
        )

    async def list_events(self, calendar_id: str, query: EventQuery = EventQuery()) -> Events:
        path = path_of("calendars", calendar_id, "events")
        return await self._rest.fetch(Call("events.list", "GET", path, query_of(query)), Events)

    async def event_pages(self, calendar_id: str, query: EventQuery = EventQuery()) -> AsyncIterator[Events]:
        """Yield every page from `query` on; only the last has the next sync token."""
        while True:
            page = await self.list_events(calendar_id, query)
            yield page
            if not page.next_page_token:
                return
            query = msgspec.structs.replace(query, page_token=page.next_page_token)

    async def list_instances(
        self, calendar_id: str, event_id: str, *, query: InstanceQuery = InstanceQuery()
    ) -> Events:
        """Return one page of a recurring event's instances."""
        path = path_of("calendars", calendar_id, "events", event_id, "instances")
        return await self._rest.fetch(Call("events.instances", "GET", path, query_of(query)), Events)

    async def get_event(self, calendar_id: str, event_id: str) -> CalendarEvent:
        """Return the event, also when it is cancelled."""
        return await self._rest.fetch(Call("events.get", "GET", _event(calendar_id, event_id)), CalendarEvent)

    async def insert_event(
        self, calendar_id: str, event: NewEvent, *, send_updates: SendUpdates | UnsetType = UNSET
    ) -> CalendarEvent:
        """Insert an event and return it; AlreadyExistsError when its chosen id is taken."""
        path = path_of("calendars", calendar_id, "events")
        return await self._rest.fetch(
            _write("events.insert", path, body=event, send_updates=send_updates), CalendarEvent
        )

    async def patch_event(
        self,
        calendar_id: str,
        event_id: str,
        *,
        patch: EventPatch,
        etag: str = "",
        send_updates: SendUpdates | UnsetType = UNSET,
    ) -> CalendarEvent:
        """Patch an event and return it; with `etag`, only if it has not changed since it was read."""
        path = _event(calendar_id, event_id)
        call = _write("events.patch", path, method="PATCH", body=patch, send_updates=send_updates)
        if etag:
            # It is idempotent: once it has had its effect, the event no longer has this version.
            call = msgspec.structs.replace(call, headers={"If-Match": etag}, repeatable=True)
        return await self._rest.fetch(call, CalendarEvent)

    async def delete_event(
        self, calendar_id: str, event_id: str, *, send_updates: SendUpdates | UnsetType = UNSET
    ) -> None:
        """Delete an event; GoneError when it was deleted already, NotFoundError when it never existed."""
        path = _event(calendar_id, event_id)
        await self._rest.call(_write("events.delete", path, method="DELETE", send_updates=send_updates))

    async def watch_events(self, calendar_id: str, channel: PushChannel) -> PushChannel:
        """Open a push channel on a calendar's events; the response says when it expires.

        Its first notification may arrive before this returns.
        """
        path = path_of("calendars", calendar_id, "events", "watch")
        request = msgspec.structs.replace(channel, type="web_hook")
        return await self._rest.fetch(_write("events.watch", path, body=request), PushChannel)

    async def stop_channel(self, channel_id: str, resource_id: str) -> None:
        """Stop a channel; NotFoundError when it does not exist (any more)."""
        channel = PushChannel(id=channel_id, resource_id=resource_id)
        await self._rest.call(_write("channels.stop", path_of("channels", "stop"), body=channel))

    async def list_calendars(self, query: CalendarListQuery = CalendarListQuery()) -> CalendarList:
        """Return one page of the user's calendar list."""
        path = path_of("users", "me", "calendarList")
        return await self._rest.fetch(Call("calendarList.list", "GET", path, query_of(query)), CalendarList)


def _event(calendar_id: str, event_id: str) -> str:
    return path_of("calendars", calendar_id, "events", event_id)


def _write(
    act: str,
    path: str,
    *,
    method: str = "POST",
    body: msgspec.Struct | None = None,
    send_updates: SendUpdates | UnsetType = UNSET,
) -> Call:
    query = query_of(SendOptions(send_updates=send_updates))
    return Call(act, method, path, query, None if body is None else msgspec.json.encode(body))
