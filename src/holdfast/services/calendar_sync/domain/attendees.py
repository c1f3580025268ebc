"""The rules for attendees of an event, as one pure decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

import msgspec

from holdfast.providers.google_calendar import CalendarEvent, EventAttendee

CANCELLED: Final = "Event cancelled"
NO_PRIMARY: Final = "No mapped primary attendees"
ALL_PRESENT: Final = "All secondaries already present"
NO_GUESTS: Final = "Not a kind of event that has guests"

Secondaries = Mapping[str, Collection[str]]


class Decision(msgspec.Struct, frozen=True):
    """Addresses to add to and remove from an event; `reason` says why it stays as it is."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    reason: str = ""

    @property
    def changes(self) -> bool:
        return bool(self.add or self.remove)


def decide(
    event: CalendarEvent, *, owner: str, mappings: Secondaries, ours: Collection[str] = ()
) -> Decision:
    """Decide what to change about an event on `owner`'s calendar, where we added the addresses in `ours`.

    Addresses are compared in lower case, and `mappings` and `ours` must be in it. What we added never
    counts as a primary, so that a secondary who has secondaries does not bring them along.

    Example: `decide(event, owner="alice@hoge.jp", mappings={"alice@hoge.jp": ["alice@fuga.jp"]}).add`
    """
    if event.cancelled:
        return Decision(reason=CANCELLED)
    if event.event_type != "default":
        return Decision(reason=NO_GUESTS)
    present = [attendee.email.lower() for attendee in event.attendees]
    primaries = primaries_of(event, owner=owner, mappings=mappings, ours=ours)
    wanted = list(dict.fromkeys(one for primary in primaries for one in mappings[primary]))
    # Organizers and owners are on an event without being listed.
    on_event = {*present, *primaries, organizer_of(event)}
    add = tuple(one for one in wanted if one not in on_event)
    kept = {*wanted, *_unlisted_secondaries(event, owner=owner, mappings=mappings, ours=ours)}
    remove = tuple(dict.fromkeys(one for one in present if one in ours and one not in kept))
    if add or remove:
        return Decision(add, remove)
    return Decision(reason=ALL_PRESENT if primaries else NO_PRIMARY)


def primaries_of(
    event: CalendarEvent, *, owner: str, mappings: Secondaries, ours: Collection[str]
) -> list[str]:
    """Return the mapped people of an event, in the order they are listed.

    Where none is listed it is the calendar's owner; or, on the calendar of somebody whom we put on the
    event, its organizer, so that every calendar an event is on leads to the same answer.
    """
    present = [attendee.email.lower() for attendee in event.attendees]
    listed = [one for one in dict.fromkeys(present) if one in mappings and one not in ours]
    if listed:
        return listed
    return _unlisted_primaries(event, owner=owner, mappings=mappings, ours=ours)[:1]


def _unlisted_primaries(
    event: CalendarEvent, *, owner: str, mappings: Secondaries, ours: Collection[str]
) -> list[str]:
    implied = [owner.lower(), organizer_of(event)]
    return [one for one in implied if one in mappings and one not in ours]


def _unlisted_secondaries(
    event: CalendarEvent, *, owner: str, mappings: Secondaries, ours: Collection[str]
) -> Iterable[str]:
    """Secondaries of primaries who are on an event without being listed: they stay when others are added."""
    unlisted = _unlisted_primaries(event, owner=owner, mappings=mappings, ours=ours)
    return (one for primary in unlisted for one in mappings[primary])


def organizer_of(event: CalendarEvent) -> str:
    return event.organizer.email.lower() if event.organizer is not None else ""


def attendees_after(event: CalendarEvent, decision: Decision) -> list[EventAttendee]:
    """Return the list that a patch must send: everybody else unchanged, in their order."""
    kept = [one for one in event.attendees if one.email.lower() not in decision.remove]
    return [*kept, *(EventAttendee(email=one, response_status="needsAction") for one in decision.add)]


def ours_on(event: CalendarEvent, *, added: Sequence[str], pending: Sequence[str], etag: str) -> list[str]:
    """Return those of the addresses on record that this service put on the event.

    Those `pending` were recorded before the provider was asked. If the event still has the version that they
    were to be added to, they never were: such an address was invited by somebody else.
    """
    present = {attendee.email.lower() for attendee in event.attendees}
    untouched = bool(etag) and event.etag == etag
    noted = [one for one in added if not (untouched and one in pending)]
    return [one for one in noted if one in present]


def acting_user(event: CalendarEvent, user: str, decision: Decision) -> str:
    """Return as whom to change the event: guests may invite where the organizer allows it, never remove."""
    organizer = organizer_of(event)
    if organizer in ("", user):
        return user
    if hides_guests(event, user):
        return organizer
    may_invite = event.guests_can_invite_others and not decision.remove
    return user if event.guests_can_modify or may_invite else organizer


def hides_guests(event: CalendarEvent, reader: str) -> bool:
    """Whether the list may be incomplete: sending it back would drop those who are missing."""
    blind = not event.guests_can_see_other_guests and reader != organizer_of(event)
    return event.attendees_omitted or blind


def ends_at(event: CalendarEvent) -> datetime | None:
    """Return when the event is over for everybody; None for a series, which may never end."""
    if event.recurrence or event.end is None:
        return None
    if event.end.date_time is not None:
        return event.end.date_time
    if event.end.date is None:
        return None
    midnight = datetime.combine(event.end.date, time.min, UTC)
    # West of Greenwich the day ends later; on the last day there is, nothing comes later.
    return midnight + timedelta(days=1) if event.end.date < date.max else midnight
