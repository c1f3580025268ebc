"""The writable fields of an event; read-only and unknown fields have no effect."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.simulators.google.refusals import Refusal

Text = str | None | UnsetType
Flag = bool | None | UnsetType


class _Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class When(_Body, frozen=True):
    date: Text = UNSET
    date_time: Text = UNSET
    time_zone: Text = UNSET


class Attendee(_Body, frozen=True):
    email: str
    additional_guests: int | UnsetType = UNSET
    comment: str | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    optional: bool | UnsetType = UNSET
    resource: bool | UnsetType = UNSET
    response_status: Literal["needsAction", "declined", "tentative", "accepted"] = "needsAction"


class Properties(_Body, frozen=True):
    private: dict[str, str | None] | UnsetType = UNSET
    shared: dict[str, str | None] | UnsetType = UNSET


class Reminder(_Body, frozen=True):
    method: Literal["email", "popup"]
    minutes: int


class Reminders(_Body, frozen=True):
    use_default: bool | UnsetType = UNSET
    overrides: list[Reminder] | UnsetType = UNSET


class EventBody(_Body, frozen=True):
    id: str | UnsetType = UNSET
    summary: Text = UNSET
    description: Text = UNSET
    location: Text = UNSET
    start: When | UnsetType | None = UNSET
    end: When | UnsetType | None = UNSET
    recurrence: list[str] | UnsetType | None = UNSET
    attendees: list[Attendee] | UnsetType | None = UNSET
    status: Literal["confirmed", "tentative", "cancelled"] | UnsetType = UNSET
    visibility: Literal["default", "public", "private", "confidential"] | UnsetType = UNSET
    transparency: Literal["opaque", "transparent"] | UnsetType = UNSET
    color_id: Text = UNSET
    extended_properties: Properties | UnsetType | None = UNSET
    reminders: Reminders | UnsetType | None = UNSET
    guests_can_invite_others: Flag = UNSET
    guests_can_modify: Flag = UNSET
    guests_can_see_other_guests: Flag = UNSET


def read_body(body: object) -> dict[str, Any]:
    """The writable fields of a body, converted to their types, or a refusal."""
    try:
        read: dict[str, Any] = msgspec.to_builtins(msgspec.convert(body, EventBody))
    except msgspec.ValidationError as error:
        raise Refusal(400, "invalid", f"Invalid value: {error}") from None
    return read
