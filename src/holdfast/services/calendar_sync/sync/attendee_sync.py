"""Sync of one event's attendees: read, decide, record the intent, patch by ETag.

    event ──► decide ──► record those to be added ──► patch with the ETag ──► the sync's commit confirms them
                 ▲                                        │ somebody changed it, or no answer came
                 └───────────── read it again ◄───────────┘

Whom we add is on record before Google is asked, so that a crash in between never makes ours look like
a guest whom somebody invited by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.errors import (
    ConflictError,
    ForbiddenError,
    GoneError,
    HoldfastError,
    InvalidError,
    NotFoundError,
    ReauthRequiredError,
    RetryLaterError,
    VersionConflictError,
)
from holdfast.kit.inbox.source import id_segment
from holdfast.providers.google_calendar import CalendarEvent, EventDateTime, EventPatch
from holdfast.services.calendar_sync.domain.attendees import (
    CANCELLED,
    Decision,
    acting_user,
    attendees_after,
    decide,
    ends_at,
    hides_guests,
    organizer_of,
    ours_on,
)
from holdfast.services.calendar_sync.domain.mappings import Entries
from holdfast.services.calendar_sync.models import EventResult, Result, SyncedEvent
from holdfast.services.calendar_sync.sync.google import Google
from holdfast.store import ABSENT, Snapshot, Store, put

ATTEMPTS: Final = 8
REASON_CHARACTERS_MAX: Final = 500
_EXCEPTION: Final = "~at~"


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to an event, and what the sync's own commit records of it.

    `draft` is the record as this sync saw it, None when there is nothing to record; `ours` are the addresses
    on the event by our doing; `unreachable` is an organizer without credentials, who would have to change it.
    """

    result: EventResult
    draft: SyncedEvent | None = None
    ours: tuple[str, ...] = ()
    keep_empty: bool = False
    unreachable: str = ""

    def confirm(self, fresh: SyncedEvent | None) -> SyncedEvent | None:
        """Return the record to store; None for one that is needed no longer."""
        assert self.draft is not None
        # Another calendar's sync may be adding to the same event at this moment: its record stays.
        theirs = [one for one in fresh.pending if one not in self.draft.pending] if fresh else []
        added = list(dict.fromkeys([*self.ours, *theirs]))
        if not added and not self.keep_empty:
            return None
        etag = fresh.etag if fresh and theirs else ""
        return replace(self.draft, added=added, pending=theirs, etag=etag)


class EventCopy(msgspec.Struct, frozen=True):
    """An event that was seen on `owner`'s calendar, as `user` sees it and would change it."""

    owner: str
    user: str
    event: CalendarEvent


class AttendeeSync:
    """Applies the rules to events seen on calendars."""

    def __init__(self, store: Store, google: Google) -> None:
        self._store, self._clock, self._google = store, store.clock, google

    async def apply(self, event: CalendarEvent, *, owner: str, mappings: Entries) -> Applied:
        """Apply the rules to an event on `owner`'s calendar.

        Raises RetryLaterError when it should be tried again, and ReauthRequiredError when the owner's
        credentials are gone; what Google refuses for good is in the result.
        """
        try:
            return await self._apply(EventCopy(owner, owner, event), mappings)
        except (ForbiddenError, InvalidError) as fault:
            return _refused(event, fault)

    async def _apply(self, copy: EventCopy, mappings: Entries) -> Applied:
        as_organizer = False
        for _ in range(ATTEMPTS):
            stored, inherited = await self._records(copy.event)
            ours = tuple(_ours(copy.event, stored.doc if stored else None, inherited))
            decision = decide(copy.event, owner=copy.owner, mappings=mappings, ours=ours)
            if not decision.changes:
                return self._unchanged(copy, decision, stored=stored, ours=ours)
            seen, copy = (
                copy.event.etag,
                await self._copy_to_change(copy, decision, as_organizer=as_organizer),
            )
            if copy.event.etag != seen:
                continue
            draft = self._intent(copy, decision, ours)
            if not await self._store_intent(draft, stored):
                copy = await self._fetch(copy)
                continue
            try:
                await self._patch(copy, decision)
            except (VersionConflictError, NotFoundError, GoneError):
                copy = await self._fetch(copy)
            except ForbiddenError:
                if copy.user == organizer_of(copy.event):
                    raise
                as_organizer = True
            else:
                return _patched(draft, decision, ours=ours)
        raise RetryLaterError(f"the event {copy.event.id} kept changing meanwhile", after_s=5)

    async def apply_vanished(self, record: SyncedEvent, *, owner: str, mappings: Entries) -> Applied:
        """Apply the rules to an event on record that left `owner`'s calendar and may still be on others'."""
        gone = CalendarEvent(id=record.event_id, status="cancelled")
        organizer = record.organizer or owner
        try:
            copy = await self._fetch(EventCopy(owner, organizer, gone))
            if copy.event.cancelled:
                return _delete_record(record)
            # From here on it is an event on the organizer's calendar, whose credentials are not the owner's.
            return await self._apply(replace(copy, owner=organizer), mappings)
        except (ForbiddenError, InvalidError) as fault:
            return _refused(gone, fault)
        except ReauthRequiredError as fault:
            if organizer == owner:
                raise
            return _refused(gone, OrganizerUnreachableError(fault.message, organizer))

    async def _copy_to_change(self, copy: EventCopy, decision: Decision, *, as_organizer: bool) -> EventCopy:
        """Return the copy through which the change can be made: this one, or the organizer's."""
        user = organizer_of(copy.event) if as_organizer else acting_user(copy.event, copy.user, decision)
        if user != copy.user:
            copy = await self._fetch(replace(copy, user=user))
        if hides_guests(copy.event, copy.user):
            raise ForbiddenError("not all guests can be seen, so none may be changed")
        return copy

    async def _fetch(self, copy: EventCopy) -> EventCopy:
        """Return the copy as it is now; an event that does not exist counts as cancelled."""
        try:
            event = await self._google.calendar(copy.user).get_event(copy.user, copy.event.id)
        except (NotFoundError, GoneError):
            event = CalendarEvent(id=copy.event.id, status="cancelled")
        except ReauthRequiredError as fault:
            raise _credentials_fault(copy, fault) from None
        return replace(copy, event=event)

    async def _patch(self, copy: EventCopy, decision: Decision) -> None:
        patch = EventPatch(attendees=attendees_after(copy.event, decision))
        try:
            await self._google.calendar(copy.user).patch_event(
                copy.user, copy.event.id, patch=patch, etag=copy.event.etag, send_updates="all"
            )
        except ReauthRequiredError as fault:
            raise _credentials_fault(copy, fault) from None

    async def _records(self, event: CalendarEvent) -> tuple[Snapshot[SyncedEvent] | None, SyncedEvent | None]:
        """Return the event's own record and, for an exception seen for the first time, its series'."""
        if event.cancelled and not event.i_cal_uid:
            return None, None
        own, series = record_id(event), series_record_id(event)
        found = await self._store.get_many(SyncedEvent, [own, series] if series else [own])
        parent = found[1].doc if series and found[0] is None and found[1] is not None else None
        return found[0], parent

    async def _store_intent(self, draft: SyncedEvent, stored: Snapshot[SyncedEvent] | None) -> bool:
        """Record what is about to be added; False when another calendar's sync changed the record first."""
        try:
            await self._store.commit(put(draft, stored.unchanged if stored else ABSENT))
        except ConflictError:
            return False
        return True

    def _intent(self, copy: EventCopy, decision: Decision, ours: Sequence[str]) -> SyncedEvent:
        added = list(dict.fromkeys([*ours, *decision.add]))
        draft = self._draft(copy)
        return replace(draft, added=added, pending=list(decision.add), etag=copy.event.etag)

    def _draft(self, copy: EventCopy) -> SyncedEvent:
        return SyncedEvent(
            id=record_id(copy.event), event_id=copy.event.id, calendar_id=copy.owner,
            organizer=organizer_of(copy.event), ends_at=ends_at(copy.event), updated_at=self._clock.now(),
        )  # fmt: skip

    def _unchanged(
        self,
        copy: EventCopy,
        decision: Decision,
        *,
        stored: Snapshot[SyncedEvent] | None,
        ours: tuple[str, ...],
    ) -> Applied:
        event = copy.event
        result = EventResult(event.id, "skipped", decision.reason)
        exception = bool(event.recurring_event_id)
        if stored is None:
            # An exception is recorded at first sight: later its guests are no longer those of its series.
            draft = self._draft(copy) if exception and not event.cancelled else None
            return Applied(result=result, draft=draft, ours=ours, keep_empty=True)
        record = stored.doc
        if event.cancelled:
            return _delete_record(record)
        in_flight = bool(record.pending) and record.etag == event.etag
        if in_flight or (record.added == list(ours) and not record.pending):
            return Applied(result=result)
        draft = replace(self._draft(copy), pending=record.pending)
        return Applied(result=result, draft=draft, ours=ours, keep_empty=exception)


def _patched(draft: SyncedEvent, decision: Decision, *, ours: Sequence[str]) -> Applied:
    kinds: dict[tuple[bool, bool], Result] = {(True, False): "added", (False, True): "removed"}
    kind = kinds.get((bool(decision.add), bool(decision.remove)), "changed")
    result = EventResult(draft.event_id, kind, added=decision.add, removed=decision.remove)
    left = tuple(one for one in [*ours, *decision.add] if one not in decision.remove)
    return Applied(result=result, draft=draft, ours=left, keep_empty=_EXCEPTION in draft.id)


def _delete_record(record: SyncedEvent) -> Applied:
    return Applied(result=EventResult(record.event_id, "skipped", CANCELLED), draft=record)


class OrganizerUnreachableError(ForbiddenError):
    """The organizer, as whom an event would have to be changed, has no credentials."""

    def __init__(self, message: str, organizer: str) -> None:
        super().__init__(message)
        self.organizer = organizer


def _credentials_fault(copy: EventCopy, fault: ReauthRequiredError) -> HoldfastError:
    """Lost credentials fail the calendar's sync only if they are its owner's own."""
    return fault if copy.user == copy.owner else OrganizerUnreachableError(fault.message, copy.user)


def _refused(event: CalendarEvent, fault: HoldfastError) -> Applied:
    unreachable = fault.organizer if isinstance(fault, OrganizerUnreachableError) else ""
    result = EventResult(event.id, "failed", fault.message[:REASON_CHARACTERS_MAX])
    return Applied(result=result, unreachable=unreachable)


def record_id(event: CalendarEvent) -> str:
    """Return an id that is the same on every calendar of the event; an exception of a series has its own."""
    name = event.i_cal_uid or event.id
    if not event.recurring_event_id:
        return id_segment(name)
    return f"{id_segment(name)}{_EXCEPTION}{_moment(event.original_start_time)}"


def series_record_id(event: CalendarEvent) -> str:
    """Return the record id of an exception's series; empty for anything else."""
    return id_segment(event.i_cal_uid or event.recurring_event_id) if event.recurring_event_id else ""


def _moment(when: EventDateTime | None) -> str:
    if when is None:
        return "-"
    if when.date_time is not None:
        return str(int(when.date_time.timestamp()))
    return when.date.isoformat() if when.date is not None else "-"


def _ours(event: CalendarEvent, record: SyncedEvent | None, inherited: SyncedEvent | None) -> list[str]:
    if record is not None:
        return ours_on(event, added=record.added, pending=record.pending, etag=record.etag)
    if inherited is not None:
        # An exception is made with the guests of its series, so those we added there are ours here too.
        return ours_on(event, added=inherited.added, pending=[], etag="")
    return []
