"""One calendar's sync: read what changed page by page, apply the rules, commit with the sync token.

    begin ──► page ──► events ──► commit ──► … ──► last page ──► events ──► commit with the sync token
                                                                  │ 410: the token is too old
                          everything from now on, and what of ours is no longer there ◄─┘

A crash before the last commit leaves the old token: the same changes are read again, and deciding again
changes nothing that was done.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Final

import msgspec
import structlog
from msgspec.structs import replace

from holdfast.errors import (
    ForbiddenError,
    FullSyncRequiredError,
    InvalidError,
    LeaseLostError,
    NotFoundError,
    ReauthRequiredError,
)
from holdfast.providers.google_calendar import CalendarEvent, EventQuery
from holdfast.services.calendar_sync.domain.attendees import CANCELLED
from holdfast.services.calendar_sync.domain.mappings import Entries, is_in_domain
from holdfast.services.calendar_sync.domain.sync_state import (
    SyncOutcome,
    SyncPolicy,
    all_secondaries,
    await_organizer,
    begin_sync,
    complete_sync,
    fail_sync,
    request_sync,
)
from holdfast.services.calendar_sync.metrics import CalendarSyncMetrics
from holdfast.services.calendar_sync.models import CalendarState, EventResult, MappingReload, SyncedEvent
from holdfast.services.calendar_sync.sync.attendee_sync import Applied, AttendeeSync, record_id
from holdfast.services.calendar_sync.sync.google import Google
from holdfast.services.calendar_sync.sync.mapping_store import THE_RELOAD, MappingStore
from holdfast.store import Query, Snapshot, Store, Transaction, delete, put

log = structlog.get_logger("holdfast.calendar_sync")

PAGE: Final = 200

Change = Callable[[CalendarState], CalendarState | None]


class SyncRun(msgspec.Struct):
    """One sync under way: the state at its start, and what it has handled so far."""

    start: CalendarState
    mappings: Entries
    digest: str
    until_s: float
    full: bool = False
    handled: set[str] = set()
    records: set[str] = set()
    results: list[EventResult] = []

    @property
    def calendar_id(self) -> str:
        return self.start.calendar_id


class EventSync:
    """Syncs calendars that `Syncs` has claimed."""

    def __init__(
        self,
        store: Store,
        google: Google,
        mappings: MappingStore,
        *,
        policy: SyncPolicy,
        look_back_s: float,
        metrics: CalendarSyncMetrics,
    ) -> None:
        self._store, self._clock, self._google = store, store.clock, google
        self._mappings, self._policy, self._look_back_s = mappings, policy, look_back_s
        self._attendee_sync, self._metrics = AttendeeSync(store, google), metrics

    async def sync(self, claimed: Snapshot[CalendarState]) -> bool:
        """Sync a claimed calendar; True when it ended well. A failure is recorded and retried."""
        state = claimed.doc
        try:
            await self._sync(state)
        except LeaseLostError:
            log.warning("calendar was taken over", calendar=state.calendar_id)
            self._metrics.syncs.labels("lost").inc()
            return False
        except Exception as error:
            fault = _without_access(error)
            log.warning("calendar not synced", calendar=state.calendar_id, error=repr(fault))
            self._metrics.syncs.labels("failed").inc()
            await self._fail(state, fault)
            return False
        self._metrics.syncs.labels("done").inc()
        return True

    async def _sync(self, state: CalendarState) -> None:
        start = await self._commit(state, (), lambda fresh: begin_sync(fresh, self._clock.now()))
        assert start is not None
        mappings, digest = await self._mappings.current(), self._mappings.digest

        def run(*, full: bool) -> SyncRun:
            return SyncRun(start, mappings, digest, self._clock.monotonic() + self._policy.lease_s, full)

        try:
            if start.sync_token:
                await self._read(run(full=False), EventQuery(sync_token=start.sync_token))
                return
        except (FullSyncRequiredError, InvalidError) as fault:
            log.info("calendar is read in full", calendar=start.calendar_id, reason=fault.message)
        since = self._clock.now() - timedelta(seconds=self._look_back_s)
        try:
            await self._read(run(full=True), EventQuery(time_min=since))
        except (ReauthRequiredError, ForbiddenError, NotFoundError):
            if start.unmapped_at is not None and all_secondaries(start):
                await self._clean_up_unreadable(run(full=True))
            raise

    async def _read(self, run: SyncRun, query: EventQuery) -> None:
        """Read page by page; each page's results are committed before the next is requested."""
        calendar = self._google.calendar(run.calendar_id)
        query = replace(query, max_results=PAGE)
        async for page in calendar.event_pages(run.calendar_id, query):
            applied = await self._apply_all(run, page.items)
            if page.next_page_token:
                await self._commit_some(run, applied)
                continue
            if run.full:
                await self._commit_some(run, applied)
                applied = await self._apply_missing(run)
            await self._complete(run, applied, page.next_sync_token)

    # -- events -----------------------------------------------------------------------------------

    async def _apply_all(self, run: SyncRun, items: Sequence[CalendarEvent]) -> list[Applied]:
        on_page = {event.id: event for event in items}
        applied: list[Applied] = []
        # Exceptions first: whom an exception had before its series changed was not added by us.
        for event in sorted(items, key=lambda one: not one.recurring_event_id):
            await self._extend_lease(run)
            target = await self._target(run, event, on_page)
            if target is None or target.id in run.handled:
                continue
            run.handled.add(target.id)
            applied += await self._apply(run, target)
        return self._count(run, applied)

    def _count(self, run: SyncRun, applied: list[Applied]) -> list[Applied]:
        run.results += [one.result for one in applied]
        for one in applied:
            self._metrics.events.labels(one.result.result).inc()
        return applied

    async def _target(
        self, run: SyncRun, event: CalendarEvent, on_page: dict[str, CalendarEvent]
    ) -> CalendarEvent | None:
        """Return the event to sync: the series for its instances that have no guests of their own."""
        parent = event.recurring_event_id
        if not parent or event.attendees or event.cancelled:
            return event
        if parent in run.handled:
            return None
        if parent in on_page:
            return on_page[parent]
        try:
            return await self._google.calendar(run.calendar_id).get_event(run.calendar_id, parent)
        except NotFoundError:
            return None

    async def _apply(self, run: SyncRun, event: CalendarEvent) -> list[Applied]:
        if not event.cancelled:
            run.records.add(record_id(event))
            return [await self._attendee_sync.apply(event, owner=run.calendar_id, mappings=run.mappings)]
        # A deleted event has lost everything but its id, and may only have left this calendar.
        page = await self._store.query(Query(SyncedEvent).where("event_id", "==", event.id))
        gone = [await self._apply_vanished(run, record) for record in page.docs]
        return gone or [Applied(result=EventResult(event.id, "skipped", CANCELLED))]

    async def _apply_vanished(self, run: SyncRun, record: SyncedEvent) -> Applied:
        run.records.add(record.id)
        return await self._attendee_sync.apply_vanished(record, owner=run.calendar_id, mappings=run.mappings)

    async def _apply_missing(self, run: SyncRun) -> list[Applied]:
        """After a full read, apply the rules to events on record that are no longer on this calendar."""
        applied: list[Applied] = []
        async for record in self._records_of(run):
            past = record.ends_at is not None and record.ends_at < self._clock.now()
            if past or record.id in run.records:
                continue
            await self._extend_lease(run)
            applied += self._count(run, [await self._apply_vanished(run, record)])
            if len(applied) >= PAGE:
                await self._commit_some(run, applied)
                applied = []
        return applied

    async def _records_of(self, run: SyncRun) -> AsyncIterator[SyncedEvent]:
        """Yield the records that this calendar's sync answers for: its own, and those of calendars that are
        mapped no longer with an address it may have added; a mapped calendar's sync answers for its own."""
        own = Query(SyncedEvent).where("calendar_id", "==", run.calendar_id).limit(PAGE)
        async for found in self._store.scan(own):
            yield found.doc
        async for record in self._records_with_secondaries(run):
            if record.calendar_id not in run.mappings:
                yield record

    async def _records_with_secondaries(self, run: SyncRun) -> AsyncIterator[SyncedEvent]:
        for secondary in all_secondaries(run.start):
            added = Query(SyncedEvent).where("added", "array-contains", secondary).limit(PAGE)
            async for found in self._store.scan(added):
                yield found.doc

    async def _clean_up_unreadable(self, run: SyncRun) -> None:
        """Take the secondaries of somebody who is mapped no longer off others' events, as their organizers:
        the person's own calendar can't be read."""
        async for record in self._records_with_secondaries(run):
            if record.id not in run.records and record.organizer not in ("", run.calendar_id):
                await self._commit_some(run, self._count(run, [await self._apply_vanished(run, record)]))
        await self._commit(run.start, (), lambda fresh: replace(fresh, secondaries=[], former_secondaries=[]))

    # -- commits ---------------------------------------------------------------------------------

    async def _extend_lease(self, run: SyncRun) -> None:
        """Renew the claim unless enough of it is left for the next event."""
        if self._clock.monotonic() + self._policy.lease_s / 2 > run.until_s:
            await self._commit_some(run, [])

    async def _commit_some(self, run: SyncRun, applied: Sequence[Applied]) -> None:
        sent_s = self._clock.monotonic()
        lease = timedelta(seconds=self._policy.lease_s)
        await self._commit(run.start, applied, lambda fresh: replace(fresh, due_at=self._clock.now() + lease))
        run.until_s = sent_s + self._policy.lease_s

    async def _complete(self, run: SyncRun, applied: Sequence[Applied], sync_token: str) -> None:
        spread = random.random()
        outcome = SyncOutcome(sync_token=sync_token, results=tuple(run.results))
        await self._commit(run.start, applied, lambda fresh: complete_sync(
            fresh, run.start, outcome, now=self._clock.now(), policy=self._policy, spread=spread
        ), digest=run.digest)  # fmt: skip

    async def _fail(self, state: CalendarState, fault: Exception) -> None:
        spread, waiting = random.random(), 0
        if isinstance(fault, ReauthRequiredError):
            for status in ("attention", "unreachable"):
                waiting += await self._store.count(Query(CalendarState).where("status", "==", status))
        try:
            await self._commit(state, (), lambda fresh: fail_sync(
                fresh, fault, now=self._clock.now(), policy=self._policy, spread=spread, waiting=waiting
            ))  # fmt: skip
        except LeaseLostError:
            log.warning("calendar was taken over", calendar=state.calendar_id)

    async def _commit(
        self, held: CalendarState, applied: Sequence[Applied], change: Change, *, digest: str | None = None
    ) -> CalendarState | None:
        """Commit the records of events and the calendar's state together, while this process holds it.

        A sync that ends under another map than it began with (`digest`) may have put back what another
        calendar's sync took off by the new map, so it is repeated in full.
        """

        async def act(tx: Transaction) -> CalendarState | None:
            found = await tx.get(CalendarState, held.calendar_id)
            if found is None or found.doc.fence != held.fence:
                raise LeaseLostError(f"{held.calendar_id} is another's now, or mapped no longer")
            fresh = found.doc
            reload = await tx.get(MappingReload, THE_RELOAD) if digest is not None else None
            if reload is not None and reload.doc.digest != digest:
                fresh = request_sync(fresh, self._clock.now(), full=True)
            after = change(fresh)
            tx.write(put(after) if after is not None else delete(CalendarState, held.calendar_id))
            for one in applied:
                await _confirm(tx, one)
            errors = {one.unreachable: one.result.reason for one in applied if one.unreachable}
            for organizer, error in errors.items():
                await self._await_organizer(tx, organizer, error)
            return after

        return await self._store.transact(act)

    async def _await_organizer(self, tx: Transaction, organizer: str, error: str) -> None:
        if not is_in_domain(organizer, self._mappings.entries):
            return
        found = await tx.get(CalendarState, organizer)
        after = await_organizer(
            found.doc if found else None, organizer, now=self._clock.now(), error=error, policy=self._policy
        )
        if after is not None:
            tx.write(put(after))


async def _confirm(tx: Transaction, applied: Applied) -> None:
    if applied.draft is None:
        return
    found = await tx.get(SyncedEvent, applied.draft.id)
    after = applied.confirm(found.doc if found else None)
    if after is not None:
        tx.write(put(after))
    elif found is not None:
        tx.write(delete(SyncedEvent, applied.draft.id))


def _without_access(fault: Exception) -> Exception:
    """Treat a calendar that may not be read, or does not exist, like lost credentials: a person must act."""
    if isinstance(fault, (ForbiddenError, NotFoundError)):
        return ReauthRequiredError(fault.message)
    return fault
