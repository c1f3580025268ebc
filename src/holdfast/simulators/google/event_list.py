"""Event lists: pages, sync tokens, and the parameters that exclude one another."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from holdfast.simulators.google.calendars import Calendar, CalendarEntry, Calendars
from holdfast.simulators.google.events import Data, EventRecord, instance, tombstone, view
from holdfast.simulators.google.moments import as_instant, instant, start_of
from holdfast.simulators.google.refusals import Refusal

PAGE_MAX: Final = 2_500
PAGE_DEFAULT: Final = 250
PAGES_MAX: Final = 1_000
UPDATED_MIN_AGE_MAX: Final = timedelta(days=28)
_NOT_WITH_SYNC: Final = (
    "iCalUID",
    "orderBy",
    "privateExtendedProperty",
    "q",
    "sharedExtendedProperty",
    "timeMin",
    "timeMax",
    "updatedMin",
)
_SEARCHED: Final = ("summary", "description", "location")


class ListQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The checked parameters of a list."""

    size: int = PAGE_DEFAULT
    single: bool = False
    show_deleted: bool = False
    time_min: datetime | None = None
    time_max: datetime | None = None
    updated_min: datetime | None = None
    order_by: str = ""
    q: str = ""
    i_cal_uid: str = ""
    attendees_max: int | None = None
    since: int | None = None

    @property
    def syncable(self) -> bool:
        """Whether a sync can continue from this list; an ordered or filtered one has no position."""
        return not (self.order_by or self.q or self.i_cal_uid or self.updated_min)


class ListPage(msgspec.Struct, frozen=True):
    """The rest of a list, as it was when its first page was requested."""

    items: list[Data]
    sync_token: str


class _SyncToken(msgspec.Struct, frozen=True, array_like=True):
    email: str
    change: int
    generation: int
    single: bool


def read_query(parameters: Mapping[str, str], calendar: Calendar, *, now: datetime) -> ListQuery:
    """Parse the parameters of a list, or refuse the faulty one."""
    single = _flag(parameters, "singleEvents")
    query = ListQuery(
        size=min(number(parameters, "maxResults") or PAGE_DEFAULT, PAGE_MAX),
        single=single,
        show_deleted=_flag(parameters, "showDeleted"),
        time_min=_time(parameters, "timeMin"),
        time_max=_time(parameters, "timeMax"),
        updated_min=_time(parameters, "updatedMin"),
        order_by=parameters.get("orderBy", ""),
        q=parameters.get("q", ""),
        i_cal_uid=parameters.get("iCalUID", ""),
        attendees_max=number(parameters, "maxAttendees"),
        since=_since(parameters, calendar, single=single),
    )
    _check(query, now)
    return query


def _check(query: ListQuery, now: datetime) -> None:
    if query.time_min and query.time_max and query.time_min >= query.time_max:
        raise Refusal(400, "timeRangeEmpty", "The specified time range is empty.", where="timeMax")
    if query.order_by not in ("", "startTime", "updated"):
        raise Refusal(400, "invalidParameter", "Invalid value for orderBy.", where="orderBy")
    if query.order_by == "startTime" and not query.single:
        message = "The requested ordering is not available for the particular query."
        raise Refusal(400, "badRequest", message, where="orderBy")
    if query.updated_min and query.updated_min < now - UPDATED_MIN_AGE_MAX:
        message = "The requested minimum modification time lies too far in the past."
        raise Refusal(410, "updatedMinTooLongAgo", message, where="updatedMin")


def _flag(parameters: Mapping[str, str], name: str) -> bool:
    if parameters.get(name, "false") not in ("true", "false"):
        raise Refusal(400, "invalidParameter", f"Invalid boolean value for {name}.", where=name)
    return parameters.get(name) == "true"


def number(parameters: Mapping[str, str], name: str) -> int | None:
    """A positive integer parameter."""
    text = parameters.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise Refusal(400, "invalidParameter", f"Invalid value for {name}.", where=name)
    return int(text)


def _time(parameters: Mapping[str, str], name: str) -> datetime | None:
    return instant(parameters[name], where=name) if name in parameters else None


def _since(parameters: Mapping[str, str], calendar: Calendar, *, single: bool) -> int | None:
    if "syncToken" not in parameters:
        return None
    excluded = [name for name in _NOT_WITH_SYNC if name in parameters]
    if excluded or parameters.get("showDeleted") == "false":
        message = "Sync token cannot be used with other list restrictions."
        raise Refusal(400, "badRequest", message, where=(excluded or ["showDeleted"])[0])
    token = _decode(parameters["syncToken"])
    if token is None or token.email != calendar.email or token.single != single:
        raise Refusal(400, "invalid", "Invalid sync token value.", where="syncToken")
    if token.generation != calendar.generation:
        message = "Sync token is no longer valid, a full sync is required."
        raise Refusal(410, "fullSyncRequired", message, where="syncToken")
    return token.change


def _decode(text: str) -> _SyncToken | None:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_SyncToken)
    except (ValueError, msgspec.DecodeError):
        return None


def list_events(calendars: Calendars, calendar: Calendar, *, query: ListQuery, page_token: str) -> Data:
    """One page of a calendar's events, with the token of the next page or of the next sync."""
    page = stored_page(calendar, page_token) or _snapshot(calendars, calendar, query)
    return first_page(calendar, page, size=query.size)


def stored_page(calendar: Calendar, page_token: str) -> ListPage | None:
    """The page of a token; None for no token."""
    if page_token and page_token not in calendar.pages:
        raise Refusal(400, "invalid", "Invalid page token value.", where="pageToken")
    return calendar.pages.get(page_token)


def first_page(calendar: Calendar, page: ListPage, *, size: int) -> Data:
    """The next `size` items, in the response of a list."""
    response: Data = {
        "kind": "calendar#events",
        "etag": f'"p{calendar.generation}-{calendar.change}"',
        "summary": calendar.email,
        "updated": _updated(calendar),
        "timeZone": calendar.time_zone,
        "accessRole": "owner",
        "defaultReminders": [{"method": "popup", "minutes": 10}],
        "items": page.items[:size],
    }
    if len(page.items) > size:
        return response | {
            "nextPageToken": _store_page(calendar, ListPage(page.items[size:], page.sync_token))
        }
    return response | ({"nextSyncToken": page.sync_token} if page.sync_token else {})


def _updated(calendar: Calendar) -> str:
    last = next(reversed(calendar.entries.values()), None)
    return "2020-01-01T00:00:00.000Z" if last is None else str(last.record.data["updated"])


def _store_page(calendar: Calendar, page: ListPage) -> str:
    token = secrets.token_urlsafe(18)
    calendar.pages[token] = page
    while len(calendar.pages) > PAGES_MAX:
        del calendar.pages[next(iter(calendar.pages))]
    return token


def _snapshot(calendars: Calendars, calendar: Calendar, query: ListQuery) -> ListPage:
    entries = calendar.changed_since(query.since or 0)
    items = [item for entry in entries for item in _items(calendars, calendar, entry=entry, query=query)]
    if query.order_by == "startTime":
        items.sort(key=lambda item: as_instant(start_of(item["start"])))
    if query.order_by == "updated":
        items.sort(key=lambda item: str(item.get("updated", "")))
    token = _SyncToken(calendar.email, calendar.change, calendar.generation, query.single)
    text = base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()
    return ListPage(items, text if query.syncable else "")


def _items(
    calendars: Calendars, calendar: Calendar, *, entry: CalendarEntry, query: ListQuery
) -> Iterator[Data]:
    record = entry.record
    if query.updated_min and datetime.fromisoformat(record.data["updated"]) < query.updated_min:
        return
    if query.i_cal_uid not in ("", record.data["iCalUID"]) or not _matches(record, query.q):
        return
    if entry.gone or record.cancelled:
        if _shows_cancelled(entry, query):
            yield from _cancelled(calendars, entry, query)
    elif query.single and record.recurring:
        yield from instances(calendars, calendar, record, query=query)
    elif _overlaps(calendars, record, query):
        yield view(record, calendar.email, attendees_max=query.attendees_max)


def _shows_cancelled(entry: CalendarEntry, query: ListQuery) -> bool:
    if query.show_deleted or query.since is not None or query.updated_min is not None:
        return True
    # A cancelled instance is an exception of its series, so it is listed wherever the series is.
    return bool(entry.record.parent_id) and not entry.gone and not query.single


def _cancelled(calendars: Calendars, entry: CalendarEntry, query: ListQuery) -> Iterator[Data]:
    if query.single and entry.record.recurring:
        for start in calendars.starts(entry.record, query.time_max):
            yield tombstone(instance(entry.record, start))
    else:
        yield tombstone(entry.record.data)


def _matches(record: EventRecord, q: str) -> bool:
    people = [*record.data.get("attendees", []), record.data["organizer"]]
    texts = [record.data.get(name, "") for name in _SEARCHED]
    texts += [person.get(name, "") for person in people for name in ("email", "displayName")]
    return all(word in " ".join(texts).lower() for word in q.lower().split())


def _overlaps(calendars: Calendars, record: EventRecord, query: ListQuery) -> bool:
    if query.time_min is None and query.time_max is None:
        return True
    if not record.recurring:
        return _inside(record.data, query)
    return any(_inside(instance(record, start), query) for start in calendars.starts(record, query.time_max))


def _inside(data: Data, query: ListQuery) -> bool:
    after = query.time_min is None or as_instant(start_of(data["end"])) > query.time_min
    return after and (query.time_max is None or as_instant(start_of(data["start"])) < query.time_max)


def instances(
    calendars: Calendars, calendar: Calendar, series: EventRecord, *, query: ListQuery
) -> Iterator[Data]:
    """The unchanged instances of a series; changed ones have entries of their own."""
    for start in calendars.starts(series, query.time_max):
        one = EventRecord(instance(series, start), series.organizer)
        if one.id not in calendar.entries and _inside(one.data, query):
            yield view(one, calendar.email, attendees_max=query.attendees_max)
