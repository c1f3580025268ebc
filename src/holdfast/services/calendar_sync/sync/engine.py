"""Mappings, channels and syncs put together, and what jobs and orders do to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from holdfast.clock import to_us
from holdfast.errors import ConflictError, HoldfastError, InvalidError, RetryLaterError
from holdfast.kit.channels import ChannelPolicy, Channels, ChannelTransition, Forced, Renewal, Watch
from holdfast.kit.vault import DerivedKey
from holdfast.model import Document
from holdfast.service import Context
from holdfast.services.calendar_sync.domain.sync_state import SyncPolicy, retry_attention
from holdfast.services.calendar_sync.metrics import CalendarSyncMetrics
from holdfast.services.calendar_sync.models import (
    CHANNEL_STATUSES,
    SYNC_STATUSES,
    CalendarState,
    ChannelEvent,
    SyncedEvent,
    WatchChannel,
)
from holdfast.services.calendar_sync.reports import NAMED_MAX, StatusReport
from holdfast.services.calendar_sync.settings import CalendarSyncSettings
from holdfast.services.calendar_sync.sync.event_sync import EventSync
from holdfast.services.calendar_sync.sync.google import CalendarChannels, Google
from holdfast.services.calendar_sync.sync.loops import Syncs
from holdfast.services.calendar_sync.sync.mapping_store import MappingStore, ReloadResult
from holdfast.services.calendar_sync.sync.sources import MappingSource, SheetSource, file_source
from holdfast.store import Query, Transaction, create, delete, put

NAME: Final = "calendar-sync"
CHANNEL_KEY: Final = DerivedKey(purpose=f"{NAME} channels", signs="tokens of calendar-sync's push channels")
LOADING_S: Final = 5.0
EXPIRED_BATCH: Final = 500
RETRY_BATCH: Final = 200
RETRY_EVERY_S: Final = 10.0
_RETAINED: Final[tuple[type[Document], ...]] = (WatchChannel, SyncedEvent, ChannelEvent, Watch)


class SyncEngine:
    """Keeps one channel open for each mapped primary and their secondaries on their events.

    Example: `renewal = await engine.renew(threshold_ms=86_400_000)`
    """

    def __init__(self, context: Context) -> None:
        settings: CalendarSyncSettings = context.settings
        self.settings, self._public_url = settings, context.public_url
        self.store, self.clock = context.store, context.clock
        self.metrics = CalendarSyncMetrics()
        self._retry_s = 0.0
        self.google = Google(settings, session=context.http_session, clock=self.clock)
        self.mappings = MappingStore(self.store, self._source())
        self.keys = context.vault.secrets(CHANNEL_KEY)
        self.channels = Channels(
            self.store, CalendarChannels(self.google, address=self.address, clock=self.clock),
            name=NAME, keys=self.keys, kind=WatchChannel, hook=self._record_transitions,
            life=ChannelPolicy(
                renew_before_s=settings.renew_before_s, concurrency=settings.watch_concurrency,
                keep_stopped=settings.keep_stopped_s > 0,
            ),
        )  # fmt: skip
        policy = SyncPolicy(
            poll_s=settings.safety_poll_s, gap_s=settings.sync_gap_s, lease_s=settings.sync_lease_s
        )
        event_sync = EventSync(
            self.store, self.google, self.mappings, policy=policy, look_back_s=settings.look_back_s,
            metrics=self.metrics,
        )  # fmt: skip
        self.syncs = Syncs(
            self.store, event_sync, concurrency=settings.sync_concurrency, lease_s=policy.lease_s,
            on_success=self._on_sync_success,
        )  # fmt: skip

    def _source(self) -> MappingSource | None:
        settings = self.settings
        if not settings.in_use:
            return None
        if not settings.spreadsheet_id:
            return file_source(Path(settings.mappings))
        return SheetSource(self.google.sheets, settings.spreadsheet_id, a1_range=settings.sheet_range)

    @property
    def address(self) -> str:
        """The URL that Google sends notifications to."""
        return self.settings.webhook_url or f"{self._public_url.rstrip('/')}/{NAME}/webhook"

    async def start(self) -> None:
        """Read the last good map and the open channels from the store."""
        if self.settings.in_use:
            await self.mappings.current()
            await self.channels.load()

    async def _record_transitions(self, tx: Transaction, transitions: Sequence[ChannelTransition]) -> None:
        now = self.clock.now()
        tx.write(*(
            create(ChannelEvent(
                channel_id=one.channel_id, calendar_id=one.watched_id, act=one.act, reason=one.reason, at=now
            ))
            for one in transitions
        ))  # fmt: skip

    async def _on_sync_success(self, before: CalendarState) -> None:
        """Credentials work: retry the channel, and, where they did not work before, other calendars too."""
        await self.channels.revive([before.calendar_id])
        now_s = self.clock.monotonic()
        if before.status == "attention" and now_s >= self._retry_s:
            self._retry_s = now_s + RETRY_EVERY_S
            await self._retry_calendars()

    async def _retry_calendars(self) -> None:
        """Make every calendar due that waits for credentials."""
        waiting = [
            one.doc.calendar_id
            for status in ("attention", "unreachable")
            async for one in self.store.scan(Query(CalendarState).where("status", "==", status))
        ]
        for start in range(0, len(waiting), RETRY_BATCH):
            await asyncio.gather(*(self._retry_calendar(one) for one in waiting[start : start + RETRY_BATCH]))

    async def _retry_calendar(self, calendar_id: str) -> None:
        async def act(tx: Transaction) -> None:
            found = await tx.get(CalendarState, calendar_id)
            if found is not None and (after := retry_attention(found.doc, self.clock.now())) != found.doc:
                tx.write(put(after))

        await self.store.transact(act)

    # -- acts -------------------------------------------------------------------------------------

    def require_loaded(self) -> None:
        """Refuse, for a moment, what needs the mappings before they have been read."""
        self.require_in_use()
        if not self.mappings.loaded:
            raise RetryLaterError("the mappings are being loaded", after_s=LOADING_S)

    def require_in_use(self) -> None:
        if not self.settings.in_use:
            raise ConflictError("calendar_sync is not set up: set its service_account and mappings")

    async def refresh(self) -> ReloadResult:
        """Reload the mappings and watch what they name; after a failure, what the last good map names."""
        try:
            result = await self.mappings.reload()
        except HoldfastError:
            self.metrics.reloads.labels("failed").inc()
            if self.mappings.loaded:
                await self.channels.set_wanted(self.mappings.entries)
            raise
        self.metrics.reloads.labels("done").inc()
        await self.channels.set_wanted(self.mappings.entries)
        return result

    async def reload(self) -> ReloadResult:
        """Refresh because somebody asked; what waits for credentials is tried again."""
        try:
            result = await self.refresh()
        except (InvalidError, RetryLaterError):
            raise
        except HoldfastError as fault:
            # Not the caller's fault: whoever set the source up must mend it.
            raise ConflictError(f"the mappings' source: {fault.message}") from None
        await self.channels.revive()
        await self._retry_calendars()
        return result

    async def renew(self, *, threshold_ms: int, dry_run: bool = False) -> Renewal:
        """Renew channels that end within the threshold, and stop those whose mapping is gone."""
        self.require_loaded()
        entries = await self.mappings.current()
        if not dry_run:
            await self.channels.set_wanted(entries)
        return await self.channels.renew_expiring(threshold_ms / 1000, dry_run=dry_run)

    async def force(self, reason: str = "", *, ordered_at: datetime | None = None) -> Forced:
        """Replace every channel by a new one, from the mappings."""
        self.require_loaded()
        await self.channels.set_wanted(await self.mappings.current())
        await self._retry_calendars()
        return await self.channels.force(reason, ordered_at=ordered_at)

    async def sweep(self) -> dict[str, int]:
        """Delete what has outlived its retention; return the number of each."""
        expired = {kind.__name__: await self._expire(kind) for kind in _RETAINED}
        return expired | {"stopped": await self._delete_stopped()}

    async def _expire(self, kind: type[Document]) -> int:
        total = 0
        while count := await self.store.privileged().expire(kind, limit=EXPIRED_BATCH):
            total += count
        return total

    async def _delete_stopped(self) -> int:
        cutoff = self.clock.now() - timedelta(seconds=self.settings.keep_stopped_s)
        cutoff_ms = to_us(cutoff) // 1000
        stopped = Query(WatchChannel).where("status", "==", "stopped").order_by("expiration")
        old = [one async for one in self.store.scan(stopped) if one.doc.last_updated_at < cutoff_ms]
        await self.store.settle(
            [[delete(WatchChannel, one.doc.channel_id, expect=one.unchanged)] for one in old]
        )
        return len(old)

    # -- status -----------------------------------------------------------------------------------

    async def status(self) -> StatusReport:
        """Report on everything, from a few indexed queries; the gauges are updated with it."""
        last = (await self.store.query(Query(CalendarState).order_by("-synced_at").limit(1))).docs
        channels = await self.channels.health()
        by_sync_status = {one: await self._count_calendars(one) for one in SYNC_STATUSES}
        unread = await self._without_access() if by_sync_status["attention"] else []
        # A calendar that can be read may have a channel that can't be opened; the first of them are compared.
        unwatched = await self._readable([one.watched_id for one in channels.attention])
        report = StatusReport(
            in_use=self.settings.in_use, now=self.clock.now(), reload=await self.mappings.last_reload(),
            channels=channels,
            by_status={one: await self._count_channels(one) for one in CHANNEL_STATUSES},
            by_sync_status=by_sync_status, without_access=[*unread, *unwatched],
            needs_attention=by_sync_status["attention"] + len(unwatched),
            last_sync_at=last[0].synced_at if last else None,
        )  # fmt: skip
        self.metrics.show(report)
        return report

    async def _without_access(self) -> list[str]:
        query = Query(CalendarState).where("status", "==", "attention").limit(NAMED_MAX)
        return [one.calendar_id for one in (await self.store.query(query)).docs]

    async def _readable(self, calendar_ids: Sequence[str]) -> list[str]:
        """Those of the calendars whose sync does not need attention."""
        states = await self.store.get_many(CalendarState, calendar_ids) if calendar_ids else []
        unread = {one.doc.calendar_id for one in states if one is not None and one.doc.status == "attention"}
        return [one for one in calendar_ids if one not in unread]

    async def _count_channels(self, status: str) -> int:
        return await self.store.count(Query(WatchChannel).where("status", "==", status))

    async def _count_calendars(self, status: str) -> int:
        return await self.store.count(Query(CalendarState).where("status", "==", status))
