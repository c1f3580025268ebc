"""Who should be on an event, case by case, and what holds for every event there can be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.providers.google_calendar import CalendarEvent, EventAttendee, EventPerson
from holdfast.services.calendar_sync.domain.attendees import (
    ALL_PRESENT,
    CANCELLED,
    NO_GUESTS,
    NO_PRIMARY,
    Decision,
    attendees_after,
    decide,
    ours_on,
)

A, B, C, D = "alice@hoge.jp", "bob@hoge.jp", "carol@hoge.jp", "dave@hoge.jp"
A2, A3, B2, C2 = "alice@fuga.jp", "alice@piyo.jp", "bob@fuga.jp", "carol@fuga.jp"
X, Y = "xavier@else.org", "yvonne@else.org"
PLAIN = {A: [A2], B: [B2]}
WIDE = {A: [A2, A3], B: [B2]}
CHAIN = {A: [B], B: [C], C: [D]}
MUTUAL = {A: [B], B: [A]}
SHARED = {A: [A2], B: [A2, B2]}


def event(*emails: str, organizer: str = X, status: str = "confirmed", etag: str = "") -> CalendarEvent:
    return CalendarEvent(
        id="e1", status=status, etag=etag, organizer=EventPerson(email=organizer),
        attendees=[EventAttendee(email=email, response_status="accepted") for email in emails],
    )  # fmt: skip


def adds(*emails: str) -> Decision:
    return Decision(add=emails)


def removes(*emails: str) -> Decision:
    return Decision(remove=emails)


def stays(reason: str) -> Decision:
    return Decision(reason=reason)


# name: (event, the calendar's owner, mappings, what we added before, what should happen)
CASES: dict[str, tuple[CalendarEvent, str, Any, list[str], Decision]] = {
    "a listed primary brings its secondary": (event(A), A, PLAIN, [], adds(A2)),
    "a primary among strangers": (event(X, A, Y), A, PLAIN, [], adds(A2)),
    "two primaries bring both": (event(A, B), A, PLAIN, [], adds(A2, B2)),
    "the union from the other calendar too": (event(A, B), B, PLAIN, [], adds(A2, B2)),
    "several secondaries": (event(A), A, WIDE, [], adds(A2, A3)),
    "in the order of the guests": (event(B, A), A, PLAIN, [], adds(B2, A2)),
    "some are there already": (event(A, A2), A, WIDE, [], adds(A3)),
    "all are there already": (event(A, A2), A, PLAIN, [], stays(ALL_PRESENT)),
    "all are there by our doing": (event(A, A2), A, PLAIN, [A2], stays(ALL_PRESENT)),
    "a secondary shared by two is added once": (event(A, B), A, SHARED, [], adds(A2, B2)),
    "a shared one stays for the other primary": (event(B, A2, B2), B, SHARED, [A2, B2], stays(ALL_PRESENT)),
    "a shared one goes with the last primary": (event(X, A2), A2, SHARED, [A2], removes(A2)),
    "no guests: the owner counts": (event(organizer=A), A, PLAIN, [], adds(A2)),
    "strangers only: the owner counts": (event(X, Y, organizer=A), A, PLAIN, [], adds(A2)),
    "an unmapped owner does not": (event(X), D, PLAIN, [], stays(NO_PRIMARY)),
    "an unmapped owner without guests": (event(), D, PLAIN, [], stays(NO_PRIMARY)),
    "a listed primary stands before the owner": (event(B, organizer=A), A, PLAIN, [], adds(B2)),
    "an imported copy belongs to its owner": (event(organizer=X), A, PLAIN, [], adds(A2)),
    "the owner's secondary is there": (event(A2, organizer=A), A, PLAIN, [], stays(ALL_PRESENT)),
    "nobody is mapped": (event(A, B), A, {}, [], stays(NO_PRIMARY)),
    "nobody is mapped any more, ours goes": (event(A, A2), A, {}, [A2], removes(A2)),
    "cancelled": (event(A, status="cancelled"), A, PLAIN, [], stays(CANCELLED)),
    "cancelled, with one of ours": (event(X, A2, status="cancelled"), A, PLAIN, [A2], stays(CANCELLED)),
    "cancelled and bare": (CalendarEvent(id="e1", status="cancelled"), A, PLAIN, [], stays(CANCELLED)),
    "tentative is not cancelled": (event(A, status="tentative"), A, PLAIN, [], adds(A2)),
    "a guest in upper case is the same": (event(A.upper()), A, PLAIN, [], adds(A2)),
    "a guest in mixed case is the same": (event("Alice@Hoge.JP"), A, PLAIN, [], adds(A2)),
    "a secondary in upper case is there": (event(A, A2.upper()), A, PLAIN, [], stays(ALL_PRESENT)),
    "an owner in upper case is the same": (event(organizer=A), A.upper(), PLAIN, [], adds(A2)),
    "ours in upper case on the event": (event(X, A2.upper()), A, {}, [A2], removes(A2)),
    "no chain: the guest's secondary has secondaries": (event(A, X), A, CHAIN, [], adds(B)),
    "no chain: from the added one's calendar": (event(A, B, X), B, CHAIN, [B], stays(ALL_PRESENT)),
    "no chain: without listed primaries": (event(B, organizer=A), B, CHAIN, [B], stays(ALL_PRESENT)),
    "no chain: from the organizer's calendar": (event(B, organizer=A), A, CHAIN, [B], stays(ALL_PRESENT)),
    "no chain: further down neither": (event(A, B), C, CHAIN, [B], stays(ALL_PRESENT)),
    "a guest invited by hand brings its own": (event(A, B), A, CHAIN, [], adds(C)),
    "a middle guest alone": (event(B), B, CHAIN, [], adds(C)),
    "mutual: the first brings the other": (event(A), A, MUTUAL, [], adds(B)),
    "mutual: both by hand": (event(A, B), A, MUTUAL, [], stays(ALL_PRESENT)),
    "mutual: the added one brings nobody": (event(A, B), B, MUTUAL, [B], stays(ALL_PRESENT)),
    "mutual: the first left": (event(X, B), B, MUTUAL, [B], removes(B)),
    "mutual: the organizer is there unlisted": (event(B, organizer=A), A, MUTUAL, [], stays(ALL_PRESENT)),
    "a secondary who organizes is there": (event(A, organizer=A2), A, PLAIN, [], stays(ALL_PRESENT)),
    "an organizer in upper case": (event(A, organizer=A2.upper()), A, PLAIN, [], stays(ALL_PRESENT)),
    "the primary left: ours goes": (event(X, A2), B, {A: [A2]}, [A2], removes(A2)),
    "the primary left: by hand stays": (event(X, A2), D, PLAIN, [], stays(NO_PRIMARY)),
    "the primary left, another is there": (event(B, A2, B2), B, PLAIN, [A2, B2], removes(A2)),
    "one goes, one comes": (event(B, A2), B, PLAIN, [A2], Decision((B2,), (A2,))),
    "one of two secondaries was by hand": (event(X, A2, A3), D, WIDE, [A3], removes(A3)),
    "a mapping lost one of its secondaries": (event(A, A2, A3), A, PLAIN, [A2, A3], removes(A3)),
    "a mapping gained one": (event(A, A2), A, WIDE, [A2], adds(A3)),
    "a mapping was exchanged": (event(A, A2), A, {A: [A3]}, [A2], Decision((A3,), (A2,))),
    "ours was taken off by hand and comes back": (event(A), A, PLAIN, [A2], adds(A2)),
    "ours that is not there is not removed": (event(X), D, PLAIN, [A2], stays(NO_PRIMARY)),
    "the owner left as a guest, ours is alone": (event(A2), A2, PLAIN, [A2], removes(A2)),
    "a primary joins the organizer's event": (event(X, A2, B, organizer=A), A, PLAIN, [A2], adds(B2)),
    "the organizer's secondary stays for all": (
        event(A2, B, B2, organizer=A),
        B,
        PLAIN,
        [A2, B2],
        stays(ALL_PRESENT),
    ),
    "strangers are never removed": (event(X, Y), D, PLAIN, [], stays(NO_PRIMARY)),
    "a guest twice is still one primary": (event(A, A), A, PLAIN, [], adds(A2)),
    "a mapping to oneself adds nobody": (event(A), A, {A: [A]}, [], stays(ALL_PRESENT)),
    "out of office has no guests": (
        CalendarEvent(id="e1", event_type="outOfOffice"),
        A,
        PLAIN,
        [],
        stays(NO_GUESTS),
    ),
    "a birthday has no guests": (
        CalendarEvent(id="e1", event_type="birthday"),
        A,
        PLAIN,
        [],
        stays(NO_GUESTS),
    ),
    "no organizer is told": (
        CalendarEvent(id="e1", attendees=[EventAttendee(email=A)]),
        A,
        PLAIN,
        [],
        adds(A2),
    ),
    "a guest without an address": (
        CalendarEvent(id="e1", attendees=[EventAttendee()]),
        A,
        PLAIN,
        [],
        adds(A2),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_table_of_attendees(name: str) -> None:
    given_event, owner, mappings, ours, expected = CASES[name]
    assert decide(given_event, owner=owner, mappings=mappings, ours=ours) == expected


def test_the_table_is_long() -> None:
    assert len(CASES) >= 50


def test_those_added_have_not_answered_and_everybody_else_is_untouched() -> None:
    guests = [
        EventAttendee(email="Alice@Hoge.jp", response_status="accepted", comment="late", optional=True),
        EventAttendee(email=X, display_name="Xavier", additional_guests=2),
        EventAttendee(email=B2, response_status="declined"),
    ]
    before = CalendarEvent(id="e1", attendees=guests)
    after = attendees_after(before, Decision((A2,), (B2,)))
    assert after == [*guests[:2], EventAttendee(email=A2, response_status="needsAction")]


def test_what_was_only_intended_is_not_ours_while_the_event_is_as_it_was() -> None:
    by_hand = event(A, A2, etag="v1")
    assert ours_on(by_hand, added=[A2, A3], pending=[A2], etag="v1") == []
    assert ours_on(event(A, A2, A3, etag="v1"), added=[A2, A3], pending=[A2], etag="v1") == [A3]
    assert ours_on(event(A, A2, etag="v2"), added=[A2], pending=[A2], etag="v1") == [A2]
    assert ours_on(event(A, etag="v2"), added=[A2], pending=[], etag="") == []


# -- what holds for every event -------------------------------------------------------------------

PEOPLE = [A, B, C, D, A2, A3, B2, C2, X, Y]
addresses = st.sampled_from(PEOPLE)
spelled = st.builds(lambda email, loud: email.upper() if loud else email, addresses, st.booleans())
mappings_of = st.dictionaries(addresses, st.lists(addresses, min_size=1, max_size=3, unique=True), max_size=6)
events = st.builds(
    lambda emails, organizer: event(*emails, organizer=organizer),
    st.lists(spelled, max_size=6, unique_by=str.lower), addresses,
)  # fmt: skip
ours_of = st.lists(addresses, max_size=4, unique=True)


def _emails(attendees: list[EventAttendee]) -> list[str]:
    return [attendee.email.lower() for attendee in attendees]


@given(events, addresses, mappings_of, ours_of)
def test_no_guest_is_dropped_and_only_ours_are_removed(
    before: CalendarEvent, owner: str, mappings: dict[str, list[str]], ours: list[str]
) -> None:
    decision = decide(before, owner=owner, mappings=mappings, ours=ours)
    after = attendees_after(before, decision)
    assert set(decision.remove) <= set(ours)
    kept = [guest for guest in before.attendees if guest.email.lower() not in ours]
    assert [guest for guest in after if guest in kept] == kept
    assert set(_emails(before.attendees)) - set(_emails(after)) == set(decision.remove)


@given(events, addresses, mappings_of, ours_of)
def test_nobody_is_on_an_event_twice(
    before: CalendarEvent, owner: str, mappings: dict[str, list[str]], ours: list[str]
) -> None:
    after = _emails(attendees_after(before, decide(before, owner=owner, mappings=mappings, ours=ours)))
    assert len(after) == len(set(after))


@given(events, addresses, mappings_of, ours_of)
def test_deciding_again_changes_nothing_on_any_calendar_the_event_is_on(
    before: CalendarEvent, owner: str, mappings: dict[str, list[str]], ours: list[str]
) -> None:
    mappings = {one: [two for two in some if two != one] for one, some in mappings.items()}
    assert before.organizer is not None
    owner = before.organizer.email
    ours = [one for one in ours if one in _emails(before.attendees) and one != owner]
    decision = decide(before, owner=owner, mappings=mappings, ours=ours)
    ours = [one for one in [*ours, *decision.add] if one not in decision.remove]
    after = CalendarEvent(id="e1", organizer=before.organizer, attendees=attendees_after(before, decision))
    present = _emails(after.attendees)
    for calendar in {owner, *present}:
        again = decide(after, owner=calendar, mappings=mappings, ours=[one for one in ours if one in present])
        assert not again.changes, f"{calendar} sees it otherwise"


@given(events, addresses, mappings_of)
def test_only_secondaries_of_somebody_on_the_event_are_added(
    before: CalendarEvent, owner: str, mappings: dict[str, list[str]]
) -> None:
    there = {*_emails(before.attendees), owner, before.organizer.email if before.organizer else ""}
    decision = decide(before, owner=owner, mappings=mappings)
    allowed = {two for one in there if one in mappings for two in mappings[one]}
    assert set(decision.add) <= allowed
