"""The service itself: mappings, channels and syncs put together, and what people can ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from holdfast.clock import to_us
from holdfast.errors import (
    ConflictError,
    HoldfastError,
    InvalidError,
    NotFoundError,
    RetryLaterError,
)
from holdfast.kit import NO_TENANT
from holdfast.kit.audit import AuditEntry
from holdfast.kit.channels import ChannelPolicy, Channels, ChannelTransition, Listing, Renewal, Watch
from holdfast.model import Document
from holdfast.service import Context
from holdfast.services.calendar_sync.domain.sync_state import SyncPolicy, asked
from holdfast.services.calendar_sync.metrics import CalendarSyncMetrics
from holdfast.services.calendar_sync.models import (
    CalendarState,
    ChannelEvent,
    SyncedEvent,
    SyncHealth,
    WatchChannel,
)
from holdfast.services.calendar_sync.reports import Filter, ForcedResponse, StatusReport, StoppedResponse
from holdfast.services.calendar_sync.settings import CalendarSyncSettings
from holdfast.services.calendar_sync.sync.event_sync import EventSync
from holdfast.services.calendar_sync.sync.google import CalendarChannels, Google
from holdfast.services.calendar_sync.sync.loops import Syncs
from holdfast.services.calendar_sync.sync.mapping_store import MappingStore, Reloaded
from holdfast.services.calendar_sync.sync.sources import MappingSource, SheetSource, file_source
from holdfast.store import Query, QueryPage, Transaction, create, delete, put

NAME: Final = "calendar-sync"
LOADING_S: Final = 5.0
SWEPT_AT_ONCE: Final = 500
STATUSES: Final = ("active", "expired", "stopped")
STANDINGS: Final = ("fine", "failing", "attention")
D = TypeVar("D", bound=Document)
_RETAINED: Final[tuple[type[Document], ...]] = (WatchChannel, SyncedEvent, ChannelEvent, Watch)


class CalendarSync:
    """Keeps one channel open for each mapped primary and their secondaries on their events.

    Example: `renewal = await keeper.renew(threshold_ms=86_400_000)`
    """

    def __init__(self, context: Context) -> None:
        settings: CalendarSyncSettings = context.settings
        self.settings, self._context = settings, context
        self._store, self._clock = context.store, context.clock
        self.metrics = CalendarSyncMetrics()
        self.google = Google(settings, clock=self._clock)
        self.directory = MappingStore(self._store, self._source())
        self.keys = context.vault.secrets(f"{NAME} channels")
        self.channels = Channels(
            self._store, CalendarChannels(self.google, address=self.address, clock=self._clock),
            name=NAME, key=self.keys[0], kind=WatchChannel, hook=self._happened,
            life=ChannelPolicy(
                renew_before_s=settings.renew_before_s, concurrency=settings.watch_concurrency,
                keep_stopped=settings.keep_stopped_s > 0,
            ),
        )  # fmt: skip
        pace = SyncPolicy(
            poll_s=settings.safety_poll_s, gap_s=settings.sync_gap_s, lease_s=settings.sync_lease_s
        )
        syncing = EventSync(
            self._store, self.google, self.directory, pace=pace, look_back_s=settings.look_back_s,
            metrics=self.metrics,
        )  # fmt: skip
        self.syncs = Syncs(
            self._store, syncing, concurrency=settings.sync_concurrency, lease_s=pace.lease_s,
            synced=self._synced,
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
        """Where Google sends notifications."""
        return self.settings.webhook_url or f"{self._context.public_url.rstrip('/')}/{NAME}/webhook"

    async def start(self) -> None:
        """Read what is kept: the last good map, and the channels that are open."""
        if self.settings.in_use:
            await self.directory.current()
            await self.channels.load()

    async def close(self) -> None:
        await self.google.close()

    # -- what happens by itself -------------------------------------------------------------------

    async def _happened(self, tx: Transaction, news: Sequence[ChannelTransition]) -> None:
        now = self._clock.now()
        tx.write(*(
            create(ChannelEvent(
                channel_id=one.channel_id, calendar_id=one.watched_id, act=one.act, reason=one.reason, at=now
            ))
            for one in news
        ))  # fmt: skip

    async def _synced(self, calendar_id: str) -> None:
        """Credentials work: a channel that was given up for the want of them is tried again."""
        await self.channels.revive([calendar_id])

    async def refresh(self) -> Reloaded:
        """Reload the mappings and watch what they name; also with the last good map when they can't be."""
        try:
            reloaded = await self.directory.reload()
        except HoldfastError:
            self.metrics.reloads.labels("failed").inc()
            if self.directory.loaded:
                await self.channels.set_wanted(self.directory.entries)
            raise
        self.metrics.reloads.labels("done").inc()
        await self.channels.set_wanted(self.directory.entries)
        return reloaded

    async def sweep(self) -> dict[str, int]:
        """Delete what has been kept long enough; says how many of each."""
        gone = {kind.__name__: await self._expire(kind) for kind in _RETAINED}
        return gone | {"stopped": await self._drop_stopped()}

    async def _expire(self, kind: type[Document]) -> int:
        total = 0
        while count := await self._store.privileged().expire(kind, limit=SWEPT_AT_ONCE):
            total += count
        return total

    async def _drop_stopped(self) -> int:
        cutoff = self._clock.now() - timedelta(seconds=self.settings.keep_stopped_s)
        cutoff_ms = to_us(cutoff) // 1000
        stopped = Query(WatchChannel).where("status", "==", "stopped").order_by("expiration")
        old = [one async for one in self._store.scan(stopped) if one.doc.last_updated_at < cutoff_ms]
        await self._store.settle(
            [[delete(WatchChannel, one.doc.channel_id, expect=one.unchanged)] for one in old]
        )
        return len(old)

    # -- what people do ---------------------------------------------------------------------------

    def require_loaded(self) -> None:
        """Refuse, for a moment, what needs the mappings before they have been read."""
        if not self.settings.in_use:
            raise ConflictError("calendar_sync is not set up: set its service_account and mappings")
        if not self.directory.loaded:
            raise RetryLaterError("the mappings are being loaded", after_s=LOADING_S)

    async def reload(self) -> Reloaded:
        """Reload the mappings because somebody asked; what waits for credentials is tried again."""
        if not self.settings.in_use:
            self.require_loaded()
        try:
            reloaded = await self.refresh()
        except (InvalidError, RetryLaterError):
            raise
        except HoldfastError as fault:
            # Not the caller's fault: whoever set the source up must mend it.
            raise ConflictError(f"the mappings' source: {fault.message}") from None
        attention = (await self.channels.health()).attention
        await self.channels.revive([one.watched_id for one in attention])
        return reloaded

    async def renew(self, *, threshold_ms: int, dry_run: bool = False) -> Renewal:
        """Renew channels that end within the threshold, and stop those whose mapping is gone."""
        self.require_loaded()
        entries = await self.directory.current()
        if not dry_run:
            await self.channels.set_wanted(entries)
        return await self.channels.renew_expiring(threshold_ms / 1000, dry_run=dry_run)

    async def force(self, reason: str = "") -> ForcedResponse:
        """Replace every channel by a new one, from the mappings."""
        self.require_loaded()
        await self.channels.set_wanted(await self.directory.current())
        forced = await self.channels.force(reason)
        return ForcedResponse(
            registered=forced.opened, stopped=forced.stopped, failed=forced.failed, errors=forced.errors
        )

    async def stop_channel(self, channel_id: str) -> StoppedResponse:
        """Stop one channel; a calendar that is still mapped gets another first."""
        self.require_loaded()
        calendar_id = await self.channels.find(channel_id) or ""
        await self.channels.stop(channel_id)
        found = await self._store.get(WatchChannel, channel_id)
        channels = Query(WatchChannel).where("watched_id", "==", calendar_id).order_by("expiration")
        live = [c for c in (await self._store.query(channels)).docs if c.status == "active"]
        return StoppedResponse(
            channel_id=channel_id, calendar_id=calendar_id,
            stopped=found is None or found.doc.status != "active",
            replaced_by=next((c.channel_id for c in live if c.channel_id != channel_id), ""),
        )  # fmt: skip

    async def ask_for_sync(self, calendar_id: str, *, anew: bool = False) -> None:
        """Have a calendar looked at; NotFoundError when it is nobody's who is mapped."""

        async def act(tx: Transaction) -> None:
            found = await tx.get(CalendarState, calendar_id)
            if found is None:
                raise NotFoundError(
                    f"{calendar_id} is not mapped; `holdfast calendar-sync mappings` shows who is"
                )
            tx.write(put(asked(replace(found.doc, failures=0), self._clock.now(), anew=anew)))

        await self._store.transact(act)

    async def note(self, action: str, *, actor: str, subject: str = "", details: Any = None) -> None:
        """Put what somebody did on the audit trail."""
        entry = AuditEntry(action=f"calendar_sync.{action}", actor=actor, subject=subject, details=details)
        await self._context.audit(NO_TENANT).append(entry)

    # -- what people see --------------------------------------------------------------------------

    async def listing(self, only: Filter = "all", *, limit: int = 100, cursor: str | None = None) -> Listing:
        """Channels, soonest end first."""
        return await self.channels.status(None if only == "all" else only, limit=limit, cursor=cursor)

    async def calendars(
        self, standing: SyncHealth, *, limit: int = 100, cursor: str | None = None
    ) -> QueryPage[CalendarState]:
        """Calendars whose sync stands so."""
        query = Query(CalendarState).where("standing", "==", standing).limit(limit).after(cursor)
        return await self._store.query(query)

    async def state_of(self, calendar_id: str) -> CalendarState | None:
        """Where one calendar's sync stands; None for one that is not mapped."""
        found = await self._store.get(CalendarState, calendar_id)
        return found.doc if found else None

    async def page_of(self, query: Query[D]) -> list[D]:
        """What a query of the service's own documents finds."""
        return (await self._store.query(query)).docs

    def now(self) -> datetime:
        return self._clock.now()

    async def look(self) -> StatusReport:
        """How everything is, from a few indexed questions; the figures are brought up to date with it."""
        last = (await self._store.query(Query(CalendarState).order_by("-synced_at").limit(1))).docs
        look = StatusReport(
            in_use=self.settings.in_use, now=self._clock.now(), reload=await self.directory.last_reload(),
            channels=await self.channels.health(), by_status=await self._count_channels(),
            by_standing=await self._count_calendars(), last_sync_at=last[0].synced_at if last else None,
        )  # fmt: skip
        self._show(look)
        return look

    async def _count_channels(self) -> dict[str, int]:
        query = Query(WatchChannel)
        return {one: await self._store.count(query.where("status", "==", one)) for one in STATUSES}

    async def _count_calendars(self) -> dict[str, int]:
        query = Query(CalendarState)
        return {one: await self._store.count(query.where("standing", "==", one)) for one in STANDINGS}

    def _show(self, look: StatusReport) -> None:
        for status, count in look.by_status.items():
            self.metrics.channels.labels(status).set(count)
        for standing, count in look.by_standing.items():
            self.metrics.calendars.labels(standing).set(count)
        self.metrics.mappings.set(look.reload.mappings)
        self.metrics.attention.set(look.channels.watches.get("attention", 0))
        self.metrics.soonest.set((look.channels.soonest_expiration or 0) / 1000)
