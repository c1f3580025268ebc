"""Bringing one event to what the rules say: read, decide, keep what we intend, patch by its version.

    event ──► decide ──► note those to be added ──► patch with the ETag ──► the sync's commit confirms them
                 ▲                                        │ somebody changed it, or no answer came
                 └───────────── read it again ◄───────────┘

Whom we add is on record before Google is asked, so that a crash in between never makes ours look like
a guest whom somebody invited by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
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
from holdfast.kit.inbox.inbox import id_segment
from holdfast.providers.google_calendar import CalendarEvent, EventDateTime, EventPatch
from holdfast.services.calendar_sync.domain.attendees import (
    CANCELLED,
    Decision,
    attendees_after,
    decide,
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
    """What was done to an event, and what is to be noted of it with the sync's own commit.

    `draft` is the record as this sync saw it, None when there is nothing to note; `ours` are the addresses
    on the event by our doing; `unreachable` is an organizer without credentials, who would have to change it.
    """

    result: EventResult
    draft: SyncedEvent | None = None
    ours: tuple[str, ...] = ()
    keep_empty: bool = False
    unreachable: str = ""

    def confirmed(self, fresh: SyncedEvent | None) -> SyncedEvent | None:
        """The record as it should be; None for one that is needed no longer."""
        assert self.draft is not None
        # Another calendar's sync may be adding to the same event at this moment: its note stays.
        theirs = [one for one in fresh.pending if one not in self.draft.pending] if fresh else []
        added = list(dict.fromkeys([*self.ours, *theirs]))
        if not added and not self.keep_empty:
            return None
        etag = fresh.etag if fresh and theirs else ""
        return replace(self.draft, added=added, pending=theirs, etag=etag)


class _Copy(msgspec.Struct, frozen=True):
    """An event that was seen on `owner`'s calendar, as `speaker` sees it and would change it."""

    owner: str
    speaker: str
    event: CalendarEvent


class AttendeeSync:
    """Applies the rules to events seen on calendars."""

    def __init__(self, store: Store, google: Google) -> None:
        self._store, self._clock, self._google = store, store.clock, google

    async def apply(self, event: CalendarEvent, *, owner: str, mappings: Entries) -> Applied:
        """Bring an event on `owner`'s calendar to what the rules say.

        Raises RetryLaterError when it should be tried again, and ReauthRequiredError when the owner's
        credentials are gone; what Google refuses for good is told in the result.
        """
        try:
            return await self._apply(_Copy(owner, owner, event), mappings)
        except (ForbiddenError, InvalidError) as fault:
            return _refused(event, fault)

    async def _apply(self, copy: _Copy, mappings: Entries) -> Applied:
        barred = False
        for _ in range(ATTEMPTS):
            found, inherited = await self._records(copy.event)
            ours = tuple(_ours(copy.event, found.doc if found else None, inherited))
            decision = decide(copy.event, owner=copy.owner, mappings=mappings, ours=ours)
            if not decision.changes:
                return self._unchanged(copy, decision, found=found, ours=ours)
            seen, copy = copy.event.etag, await self._at_hand(copy, decision, barred=barred)
            if copy.event.etag != seen:
                continue
            draft = self._intent(copy, decision, ours)
            if not await self._kept(draft, found):
                copy = await self._fetch(copy)
                continue
            try:
                await self._patch(copy, decision)
            except (VersionConflictError, NotFoundError, GoneError):
                copy = await self._fetch(copy)
            except ForbiddenError:
                if copy.speaker == organizer_of(copy.event):
                    raise
                barred = True
            else:
                return _changed(draft, decision, ours=ours)
        raise RetryLaterError(f"the event {copy.event.id} kept changing meanwhile", after_s=5)

    async def vanished(self, record: SyncedEvent, *, owner: str, mappings: Entries) -> Applied:
        """Deal with an event of ours that is no longer on `owner`'s calendar: it may still be on others'."""
        gone = CalendarEvent(id=record.event_id, status="cancelled")
        organizer = record.organizer or owner
        try:
            copy = await self._fetch(_Copy(owner, organizer, gone))
            if copy.event.cancelled:
                return _forgotten(record)
            # From here on it is an event on the organizer's calendar, whose credentials are not the owner's.
            return await self._apply(replace(copy, owner=organizer), mappings)
        except (ForbiddenError, InvalidError) as fault:
            return _refused(gone, fault)
        except ReauthRequiredError as fault:
            if organizer == owner:
                raise
            return _refused(gone, OrganizerUnreachableError(fault.message, organizer))

    async def _at_hand(self, copy: _Copy, decision: Decision, *, barred: bool) -> _Copy:
        """The copy through which the change can be made: this one, or the organizer's."""
        speaker = organizer_of(copy.event) if barred else acting_user(copy.event, copy.speaker, decision)
        if speaker != copy.speaker:
            copy = await self._fetch(replace(copy, speaker=speaker))
        if hides_guests(copy.event, copy.speaker):
            raise ForbiddenError("not all guests can be seen, so none may be changed")
        return copy

    async def _fetch(self, copy: _Copy) -> _Copy:
        """The copy as it is now; an event that is not there (any more) is a cancelled one."""
        try:
            event = await self._google.calendar(copy.speaker).get_event(copy.speaker, copy.event.id)
        except (NotFoundError, GoneError):
            event = CalendarEvent(id=copy.event.id, status="cancelled")
        except ReauthRequiredError as fault:
            raise _for_speaker(copy, fault) from None
        return replace(copy, event=event)

    async def _patch(self, copy: _Copy, decision: Decision) -> None:
        patch = EventPatch(attendees=attendees_after(copy.event, decision))
        try:
            await self._google.calendar(copy.speaker).patch_event(
                copy.speaker, copy.event.id, patch=patch, etag=copy.event.etag, send_updates="all"
            )
        except ReauthRequiredError as fault:
            raise _for_speaker(copy, fault) from None

    async def _records(self, event: CalendarEvent) -> tuple[Snapshot[SyncedEvent] | None, SyncedEvent | None]:
        """The event's own record and, for an exception seen for the first time, its series'."""
        if event.cancelled and not event.i_cal_uid:
            return None, None
        own, series = record_id(event), series_record_id(event)
        found = await self._store.get_many(SyncedEvent, [own, series] if series else [own])
        parent = found[1].doc if series and found[0] is None and found[1] is not None else None
        return found[0], parent

    async def _kept(self, draft: SyncedEvent, found: Snapshot[SyncedEvent] | None) -> bool:
        """Keep what is about to be added; False when another calendar's sync was at this event first."""
        try:
            await self._store.commit(put(draft, found.unchanged if found else ABSENT))
        except ConflictError:
            return False
        return True

    def _intent(self, copy: _Copy, decision: Decision, ours: Sequence[str]) -> SyncedEvent:
        added = list(dict.fromkeys([*ours, *decision.add]))
        draft = self._draft(copy)
        return replace(draft, added=added, pending=list(decision.add), etag=copy.event.etag)

    def _draft(self, copy: _Copy) -> SyncedEvent:
        return SyncedEvent(
            id=record_id(copy.event), event_id=copy.event.id, calendar_id=copy.owner,
            organizer=organizer_of(copy.event), ends_at=_ends_at(copy.event), updated_at=self._clock.now(),
        )  # fmt: skip

    def _unchanged(
        self,
        copy: _Copy,
        decision: Decision,
        *,
        found: Snapshot[SyncedEvent] | None,
        ours: tuple[str, ...],
    ) -> Applied:
        event = copy.event
        result = EventResult(event.id, "skipped", decision.reason)
        exception = bool(event.recurring_event_id)
        if found is None:
            # An exception is noted at first sight: later its guests are no longer those of its series.
            draft = self._draft(copy) if exception and not event.cancelled else None
            return Applied(result=result, draft=draft, ours=ours, keep_empty=True)
        record = found.doc
        if event.cancelled:
            return _forgotten(record)
        in_flight = bool(record.pending) and record.etag == event.etag
        if in_flight or (record.added == list(ours) and not record.pending):
            return Applied(result=result)
        draft = replace(self._draft(copy), pending=record.pending)
        return Applied(result=result, draft=draft, ours=ours, keep_empty=exception)


def _changed(draft: SyncedEvent, decision: Decision, *, ours: Sequence[str]) -> Applied:
    kinds: dict[tuple[bool, bool], Result] = {(True, False): "added", (False, True): "removed"}
    kind = kinds.get((bool(decision.add), bool(decision.remove)), "changed")
    result = EventResult(draft.event_id, kind, added=decision.add, removed=decision.remove)
    left = tuple(one for one in [*ours, *decision.add] if one not in decision.remove)
    return Applied(result=result, draft=draft, ours=left, keep_empty=_EXCEPTION in draft.id)


def _forgotten(record: SyncedEvent) -> Applied:
    return Applied(result=EventResult(record.event_id, "skipped", CANCELLED), draft=record)


class OrganizerUnreachableError(ForbiddenError):
    """The organizer, as whom an event would have to be changed, has no credentials."""

    def __init__(self, message: str, organizer: str) -> None:
        super().__init__(message)
        self.organizer = organizer


def _for_speaker(copy: _Copy, fault: ReauthRequiredError) -> HoldfastError:
    """Lost credentials are the calendar's trouble only if they are its owner's own."""
    return fault if copy.speaker == copy.owner else OrganizerUnreachableError(fault.message, copy.speaker)


def _refused(event: CalendarEvent, fault: HoldfastError) -> Applied:
    unreachable = fault.organizer if isinstance(fault, OrganizerUnreachableError) else ""
    result = EventResult(event.id, "failed", fault.message[:REASON_CHARACTERS_MAX])
    return Applied(result=result, unreachable=unreachable)


def acting_user(event: CalendarEvent, speaker: str, decision: Decision) -> str:
    """Who must ask for the change: a guest may invite where the organizer lets them, and never take off."""
    organizer = organizer_of(event)
    if organizer in ("", speaker):
        return speaker
    if hides_guests(event, speaker):
        return organizer
    may_invite = event.guests_can_invite_others and not decision.remove
    return speaker if event.guests_can_modify or may_invite else organizer


def hides_guests(event: CalendarEvent, reader: str) -> bool:
    """Whether the list may be less than whole: sending it back would drop those who are not in it."""
    blind = not event.guests_can_see_other_guests and reader != organizer_of(event)
    return event.attendees_omitted or blind


def record_id(event: CalendarEvent) -> str:
    """The same on every calendar that the event is on; an exception of a series has its own."""
    name = event.i_cal_uid or event.id
    if not event.recurring_event_id:
        return id_segment(name)
    return f"{id_segment(name)}{_EXCEPTION}{_moment(event.original_start_time)}"


def series_record_id(event: CalendarEvent) -> str:
    """The record of the series that an exception belongs to; empty for anything else."""
    return id_segment(event.i_cal_uid or event.recurring_event_id) if event.recurring_event_id else ""


def _moment(when: EventDateTime | None) -> str:
    if when is None:
        return "-"
    if when.date_time is not None:
        return str(int(when.date_time.timestamp()))
    return when.date.isoformat() if when.date is not None else "-"


def _ends_at(event: CalendarEvent) -> datetime | None:
    """When nothing about it matters any more; None for a series, which may go on for ever."""
    if event.recurrence or event.end is None:
        return None
    if event.end.date_time is not None:
        return event.end.date_time
    if event.end.date is None:
        return None
    midnight = datetime.combine(event.end.date, time.min, UTC)
    # West of Greenwich the day ends later; on the last day there is, nothing comes later.
    return midnight + timedelta(days=1) if event.end.date < date.max else midnight


def _ours(event: CalendarEvent, record: SyncedEvent | None, inherited: SyncedEvent | None) -> list[str]:
    if record is not None:
        return ours_on(event, added=record.added, pending=record.pending, etag=record.etag)
    if inherited is not None:
        # An exception is made with the guests of its series, so those we added there are ours here too.
        return ours_on(event, added=inherited.added, pending=[], etag="")
    return []
