"""Events in the accounts of a chat: brings each account's calendar to the event's newest version."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from holdfast.clock import Clock
from holdfast.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    GoneError,
    HoldfastError,
    InvalidError,
    NotFoundError,
    ReauthRequiredError,
    RetryLaterError,
)
from holdfast.ids import join_segments
from holdfast.kit.connections import Connections
from holdfast.net import HttpSession
from holdfast.projection import project
from holdfast.providers.google_calendar import EventPatch, GoogleCalendar
from holdfast.providers.rest import CallLimits
from holdfast.services.c4lendar.domain.replies import AccountResult
from holdfast.services.c4lendar.events import details_of, google_event, google_event_id
from holdfast.services.c4lendar.models import BotEvent, EventMapping, GoogleConnection
from holdfast.store import Query, Store, Write, create, delete, patch, put

PRIMARY: Final = "primary"
# Once while a person waits; what fails is repaired in the background.
LIMITS: Final = CallLimits(call_s=10.0, attempts_max=2, wait_s=0.2, wait_s_max=1.0)
ROUNDS_MAX: Final = 5


class ChatCalendars:
    """The calendars of all accounts of all chats.

    Example: `results = await calendars.apply(event, accounts)`
    """

    def __init__(
        self, store: Store, connections: Connections, *, session: HttpSession, clock: Clock, base_url: str
    ) -> None:
        self._store, self._connections = store, connections
        self._session, self._clock, self._url = session, clock, base_url

    async def accounts(self, chat_id: str) -> list[GoogleConnection]:
        query = Query(GoogleConnection).where("revoked", "==", 0)
        found = [one.doc async for one in self._store.tenant(chat_id).scan(query)]
        return sorted(found, key=lambda one: one.google_email)

    async def apply(self, event: BotEvent, accounts: Sequence[GoogleConnection]) -> list[AccountResult]:
        """Bring every account to the event's newest version, all at once."""
        results = list(await asyncio.gather(*(self._apply_safely(event, one) for one in accounts)))
        await self._record_failures(event, results)
        return results

    async def _record_failures(self, event: BotEvent, results: Sequence[AccountResult]) -> None:
        """Put the reasons of failed accounts on their rows, also of those that have none yet."""
        store = self._store.tenant(event.chat_id)
        for one in results:
            if one.ok:
                continue
            id = join_segments(event.chat_id, event.uid, one.google_sub)
            stored = await store.get(EventMapping, id)
            blank = self._new_mapping(event, one.google_sub)
            with suppress(ConflictError):
                await store.commit(
                    create(msgspec.structs.replace(blank, event_title=event.title, error=one.error))
                    if stored is None
                    else patch(EventMapping, id, changes={"error": one.error}, expect=stored.unchanged)
                )

    async def _apply_safely(self, event: BotEvent, account: GoogleConnection) -> AccountResult:
        try:
            await self._apply(event, account)
            return AccountResult(email=account.google_email, google_sub=account.google_sub, ok=True)
        except HoldfastError as fault:
            return AccountResult(
                email=account.google_email, google_sub=account.google_sub, ok=False, error=_reason(fault),
                again=not isinstance(fault, InvalidError),
            )  # fmt: skip

    async def _apply(self, event: BotEvent, account: GoogleConnection) -> None:
        """Apply versions until the newest is in the calendar.

        Two commands may apply at once; the one that finishes last sees the other's version and applies it
        again, so that the calendar never stays behind.
        """
        store = self._store.tenant(event.chat_id)
        for _ in range(ROUNDS_MAX):
            mapping = await self._write_to_google(event, account)
            await store.commit(self._mapping_write(event, mapping))
            newest = await store.get(BotEvent, event.uid)
            if newest is None or newest.doc.version == event.version:
                return
            event = newest.doc
        raise RetryLaterError("the event is being changed by others", after_s=5.0)

    async def _write_to_google(self, event: BotEvent, account: GoogleConnection) -> EventMapping:
        calendar = self._calendar(account)
        mapping = await self._mapping(event, account)
        if event.deleted:
            with suppress(NotFoundError, GoneError):
                await calendar.delete_event(PRIMARY, mapping.google_event_id)
            return mapping
        new = google_event(event, mapping.google_event_id)
        patch = project(new, EventPatch)
        if mapping.version:
            with suppress(NotFoundError):
                await calendar.patch_event(PRIMARY, mapping.google_event_id, patch=patch)
                return mapping
        try:
            await calendar.insert_event(PRIMARY, new)
        except AlreadyExistsError:
            # Inserted before a crash, or deleted since: Google keeps the id either way.
            await calendar.patch_event(PRIMARY, mapping.google_event_id, patch=patch)
        return mapping

    async def _mapping(self, event: BotEvent, account: GoogleConnection) -> EventMapping:
        stored = await self._store.tenant(event.chat_id).get(
            EventMapping, join_segments(event.chat_id, event.uid, account.google_sub)
        )
        return self._new_mapping(event, account.google_sub) if stored is None else stored.doc

    def _new_mapping(self, event: BotEvent, google_sub: str) -> EventMapping:
        now = self._clock.now()
        return EventMapping(
            chat_id=event.chat_id, bot_event_uid=event.uid, google_sub=google_sub,
            google_event_id=google_event_id(event.chat_id, event.uid, google_sub=google_sub),
            created_at=now, updated_at=now,
        )  # fmt: skip

    def _mapping_write(self, event: BotEvent, mapping: EventMapping) -> Write:
        if event.deleted:
            return delete(EventMapping, join_segments(event.chat_id, event.uid, mapping.google_sub))
        details = details_of(event)
        return put(msgspec.structs.replace(
            mapping, event_title=details.title, event_start=details.start.isoformat(),
            version=event.version, error="", updated_at=self._clock.now(),
        ))  # fmt: skip

    def _calendar(self, account: GoogleConnection) -> GoogleCalendar:
        return GoogleCalendar(
            self._session, self._connections.tokens(account.connection_id), clock=self._clock,
            base_url=self._url, limits=LIMITS,
        )  # fmt: skip


def _reason(fault: HoldfastError) -> str:
    """The reason of a failed account, for people in the chat."""
    if isinstance(fault, ReauthRequiredError):
        return "the sign-in has ended, send #aut to connect it again"
    if isinstance(fault, ForbiddenError):
        return "Google does not allow it"
    if isinstance(fault, RetryLaterError):
        return "Google is unavailable"
    return "Google refused the event"
