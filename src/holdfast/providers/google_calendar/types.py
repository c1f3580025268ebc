"""Calendar v3's resources, with the fields that are used here.

Two rules preserve other people's data. `EventAttendee` has every field the API has, because a patch
replaces the whole list. `EventPatch` sends only what is set, because what is left out stays.
"""

from __future__ import annotations

from datetime import date as Day
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType, field

SendUpdates = Literal["all", "externalOnly", "none"]


class _CalendarType(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class EventDateTime(_CalendarType, frozen=True):
    """A moment (`date_time`) or, for an all-day event, a day (`date`)."""

    date: Day | None = None
    date_time: datetime | None = None
    time_zone: str = ""


class EventAttendee(_CalendarType, frozen=True):
    email: str = ""
    additional_guests: int = 0
    async_operation: str = ""
    comment: str = ""
    display_name: str = ""
    id: str = ""
    optional: bool = False
    organizer: bool = False
    resource: bool = False
    response_status: str = ""
    self: bool = False


class EventPerson(_CalendarType, frozen=True):
    """An event's creator or organizer."""

    display_name: str = ""
    email: str = ""
    id: str = ""
    self: bool = False


class ExtendedProperties(_CalendarType, frozen=True):
    """An application's own properties of an event: on this copy only, or on all copies."""

    private: dict[str, str] = {}
    shared: dict[str, str] = {}


class CalendarEvent(_CalendarType, frozen=True):
    """An event on a calendar. A deleted one may have nothing but its id and `status` "cancelled".

    `created` and `updated` are left out: Google says of some imported events that they are of the year 0.
    """

    id: str = ""
    status: str = "confirmed"
    etag: str = ""
    summary: str = ""
    description: str = ""
    location: str = ""
    html_link: str = ""
    creator: EventPerson | None = None
    organizer: EventPerson | None = None
    start: EventDateTime | None = None
    end: EventDateTime | None = None
    recurrence: list[str] = []
    recurring_event_id: str = ""
    original_start_time: EventDateTime | None = None
    i_cal_uid: str = field(name="iCalUID", default="")
    sequence: int = 0
    attendees: list[EventAttendee] = []
    attendees_omitted: bool = False
    extended_properties: ExtendedProperties | None = None
    guests_can_invite_others: bool = True
    guests_can_modify: bool = False
    guests_can_see_other_guests: bool = True
    event_type: str = "default"

    @property
    def cancelled(self) -> bool:
        return self.status == "cancelled"


class EventPatch(_CalendarType, frozen=True):
    """The fields to change; the rest of the event stays as it is.

    Example: `EventPatch(attendees=[*event.attendees, EventAttendee(email="alice@fuga.jp")])`
    """

    status: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    location: str | UnsetType = UNSET
    start: EventDateTime | UnsetType = UNSET
    end: EventDateTime | UnsetType = UNSET
    recurrence: list[str] | UnsetType = UNSET
    attendees: list[EventAttendee] | UnsetType = UNSET
    extended_properties: ExtendedProperties | UnsetType = UNSET


class NewEvent(EventPatch, frozen=True):
    """An event to insert. A chosen `id` (5 to 1024 of a-v and 0-9) makes a repeated insert harmless."""

    id: str | UnsetType = UNSET


class Events(_CalendarType, frozen=True):
    """One page: `next_page_token` when there are more, `next_sync_token` on the last."""

    items: list[CalendarEvent] = []
    next_page_token: str = ""
    next_sync_token: str = ""
    etag: str = ""
    summary: str = ""
    time_zone: str = ""
    access_role: str = ""


class EventQuery(_CalendarType, frozen=True):
    """Selects events. With a `sync_token`, times, `updated_min`, `q` and `order_by` are refused."""

    sync_token: str = ""
    page_token: str = ""
    time_min: datetime | None = None
    time_max: datetime | None = None
    updated_min: datetime | None = None
    show_deleted: bool = False
    single_events: bool = False
    max_results: int | None = None
    order_by: Literal["", "startTime", "updated"] = ""
    q: str = ""


class InstanceQuery(_CalendarType, frozen=True):
    """Selects instances of a recurring event."""

    page_token: str = ""
    time_min: datetime | None = None
    time_max: datetime | None = None
    show_deleted: bool = False
    max_results: int | None = None


class PushChannel(_CalendarType, frozen=True):
    """A push channel, as requested and as granted.

    `expiration` is in milliseconds since 1970; the API may grant less than was requested. The repr hides the
    token, which authenticates notifications.
    """

    id: str = ""
    type: str = ""
    address: str = ""
    token: str = ""
    expiration: str = ""
    params: dict[str, str] = {}
    resource_id: str = ""
    resource_uri: str = ""

    def __repr__(self) -> str:
        return f"Channel(id={self.id!r}, resource_id={self.resource_id!r}, expiration={self.expiration!r})"

    @property
    def expiration_ms(self) -> int:
        return int(self.expiration or 0)


class CalendarListEntry(_CalendarType, frozen=True):
    id: str = ""
    etag: str = ""
    summary: str = ""
    time_zone: str = ""
    access_role: str = ""
    primary: bool = False
    deleted: bool = False


class CalendarList(_CalendarType, frozen=True):
    items: list[CalendarListEntry] = []
    next_page_token: str = ""
    next_sync_token: str = ""


class CalendarListQuery(_CalendarType, frozen=True):
    page_token: str = ""
    max_results: int | None = None


class SendOptions(_CalendarType, frozen=True):
    send_updates: SendUpdates | UnsetType = UNSET


class CalendarErrorReason(_CalendarType, frozen=True):
    domain: str = ""
    reason: str = ""
    message: str = ""


class CalendarErrorDetail(_CalendarType, frozen=True):
    code: int = 0
    message: str = ""
    errors: list[CalendarErrorReason] = []


class CalendarErrorBody(_CalendarType, frozen=True):
    """An error; its first reason says more than its status."""

    error: CalendarErrorDetail = CalendarErrorDetail()
