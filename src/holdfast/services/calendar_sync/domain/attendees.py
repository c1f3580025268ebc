"""Who should be on an event: the whole of the rules, as one pure decision."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from holdfast.providers.google_calendar import CalendarEvent, EventAttendee

CANCELLED: Final = "Event cancelled"
NO_PRIMARY: Final = "No mapped primary attendees"
ALL_PRESENT: Final = "All secondaries already present"
NO_GUESTS: Final = "Not a kind of event that has guests"

Secondaries = Mapping[str, Collection[str]]


class Decision(msgspec.Struct, frozen=True):
    """Which addresses to put on an event and which to take off; `reason` says why it stays as it is."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    reason: str = ""

    @property
    def changes(self) -> bool:
        return bool(self.add or self.remove)


def decide(
    event: CalendarEvent, *, owner: str, mappings: Secondaries, ours: Collection[str] = ()
) -> Decision:
    """What to change about an event on `owner`'s calendar, where we added the addresses in `ours`.

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
    there = {*present, *primaries, organizer_of(event)}
    add = tuple(one for one in wanted if one not in there)
    staying = {*wanted, *_of_the_unlisted(event, owner=owner, mappings=mappings, ours=ours)}
    remove = tuple(dict.fromkeys(one for one in present if one in ours and one not in staying))
    if add or remove:
        return Decision(add, remove)
    return Decision(reason=ALL_PRESENT if primaries else NO_PRIMARY)


def primaries_of(
    event: CalendarEvent, *, owner: str, mappings: Secondaries, ours: Collection[str]
) -> list[str]:
    """The mapped people of an event, in the order they are listed.

    Where none is listed it is the calendar's owner; or, on the calendar of somebody whom we put on the
    event, its organizer, so that every calendar an event is on leads to the same answer.
    """
    present = [attendee.email.lower() for attendee in event.attendees]
    listed = [one for one in dict.fromkeys(present) if one in mappings and one not in ours]
    if listed:
        return listed
    return _unlisted(event, owner=owner, mappings=mappings, ours=ours)[:1]


def _unlisted(event: CalendarEvent, *, owner: str, mappings: Secondaries, ours: Collection[str]) -> list[str]:
    implied = [owner.lower(), organizer_of(event)]
    return [one for one in implied if one in mappings and one not in ours]


def _of_the_unlisted(
    event: CalendarEvent, *, owner: str, mappings: Secondaries, ours: Collection[str]
) -> Iterable[str]:
    """Secondaries of those who are on an event without being listed: another's arrival is no reason to go."""
    unlisted = _unlisted(event, owner=owner, mappings=mappings, ours=ours)
    return (one for primary in unlisted for one in mappings[primary])


def organizer_of(event: CalendarEvent) -> str:
    return event.organizer.email.lower() if event.organizer is not None else ""


def attendees_after(event: CalendarEvent, decision: Decision) -> list[EventAttendee]:
    """The whole list that a patch must send: everybody else exactly as they were, in their order."""
    kept = [one for one in event.attendees if one.email.lower() not in decision.remove]
    return [*kept, *(EventAttendee(email=one, response_status="needsAction") for one in decision.add)]


def ours_on(event: CalendarEvent, *, added: Sequence[str], pending: Sequence[str], etag: str) -> list[str]:
    """Which of the addresses we noted are on the event by our doing.

    Those `pending` were kept before the provider was asked. If the event still has the version that they
    were to be added to, they never were: whoever is there under such an address is somebody else's guest.
    """
    present = {attendee.email.lower() for attendee in event.attendees}
    untouched = bool(etag) and event.etag == etag
    noted = [one for one in added if not (untouched and one in pending)]
    return [one for one in noted if one in present]
