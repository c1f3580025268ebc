"""What people can do to the service and read from it."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeVar

from msgspec.structs import replace

from holdfast.errors import NotFoundError
from holdfast.kit import NO_TENANT
from holdfast.model import Document
from holdfast.operation import Operator, operation
from holdfast.projection import project
from holdfast.service import Context
from holdfast.services.calendar_sync.domain.sync_state import request_sync
from holdfast.services.calendar_sync.models import CalendarState, Order, OrderKind, SyncStatus, WatchChannel
from holdfast.services.calendar_sync.orders import OrderResult, Orders
from holdfast.services.calendar_sync.reports import (
    ChannelFilter,
    ForcedResponse,
    RenewalResponse,
    StatusResponse,
    StoppedResponse,
    channel_response,
    renewal_response,
)
from holdfast.services.calendar_sync.sync.engine import SyncEngine
from holdfast.services.calendar_sync.sync.mapping_store import ReloadResult
from holdfast.store import Query, QueryPage, Transaction, put

AREA: Final = "calendar-sync"
_operation: Final = partial(operation, area=AREA, platform=True)
DAY_MS: Final = 86_400_000
D = TypeVar("D", bound=Document)


class CalendarSync:
    """The service as its routes, commands and pages use it. Acts that ask Google are orders: kept together
    with their audit event, then carried out here, or by another process when this one dies.

    Example: `response = await operations.renew(by, threshold_ms=86_400_000)`
    """

    def __init__(self, context: Context) -> None:
        self.engine = SyncEngine(context)
        self._store = context.store
        self.orders = Orders(context.store, context.audit(NO_TENANT), {
            "reload": self._reload, "renewal": self._renew, "registration": self._force
        })  # fmt: skip

    # -- acts -------------------------------------------------------------------------------------

    @_operation("calendar_sync.reload_requested", verb="reload", needs="admin")
    async def reload(self, by: Operator) -> ReloadResult:
        """Read the mappings from their source now; what waits for credentials is tried again."""
        self.engine.require_in_use()
        response: ReloadResult = await self._order(by, "reload", details=None)
        return response

    @_operation("calendar_sync.renewal_requested", verb="renew", needs="admin")
    async def renew(
        self, by: Operator, *, threshold_ms: int = DAY_MS, dry_run: bool = False
    ) -> RenewalResponse:
        """Renew channels that end within the threshold, and stop those whose mapping is gone."""
        self.engine.require_loaded()
        if dry_run:
            renewal = await self.engine.renew(threshold_ms=threshold_ms, dry_run=True)
            response = renewal_response(renewal)
            await by.commit(
                _change_nothing, action="calendar_sync.channels_renewed",
                details={**response.summary, "dryRun": True},
            )  # fmt: skip
            return response
        renewed: RenewalResponse = await self._order(
            by, "renewal", details={"expirationThreshold": threshold_ms}, threshold_ms=threshold_ms
        )
        return renewed

    @_operation("calendar_sync.registration_requested", verb="force", needs="admin")
    async def force(self, by: Operator, *, reason: str = "") -> ForcedResponse:
        """Replace every channel by a new one, from the mappings; safe to repeat."""
        self.engine.require_loaded()
        response: ForcedResponse = await self._order(
            by, "registration", details={"reason": reason}, reason=reason
        )
        return response

    async def _order(self, by: Operator, kind: OrderKind, *, details: Any, **fields: Any) -> Any:
        order = self.orders.new(kind, actor=by.actor, **fields)
        await by.commit(lambda tx: self.orders.place(tx, order), details=details)
        return await self.orders.carry_out(order)

    async def _reload(self, order: Order) -> OrderResult:
        result = await self.engine.reload()
        counts = {"mappings": result.mappings, "added": result.added, "changed": result.changed,
                  "removed": result.removed, "badRows": len(result.bad_rows)}  # fmt: skip
        return OrderResult(result, "calendar_sync.mappings_reloaded", counts)

    async def _renew(self, order: Order) -> OrderResult:
        response = renewal_response(await self.engine.renew(threshold_ms=order.threshold_ms))
        counts = {**response.summary, "dryRun": False}
        return OrderResult(response, "calendar_sync.channels_renewed", counts)

    async def _force(self, order: Order) -> OrderResult:
        forced = await self.engine.force(order.reason, ordered_at=order.ordered_at)
        response = project(forced, ForcedResponse, registered=forced.opened)
        counts = {"registered": forced.opened, "stopped": forced.stopped, "failed": forced.failed}
        return OrderResult(response, "calendar_sync.channels_forced", {"reason": order.reason, **counts})

    @_operation("calendar_sync.channel_stopped", verb="stop", needs="admin", subject="channel_id")
    async def stop_channel(self, by: Operator, channel_id: str, *, reason: str = "") -> StoppedResponse:
        """Stop one channel; a calendar that is still mapped gets another first."""
        self.engine.require_loaded()
        channels = self.engine.channels
        calendar_id = await channels.find(channel_id) or ""
        details = {"reason": reason, "calendarId": calendar_id}
        await by.commit(lambda tx: channels.release(channel_id, tx), details=details)
        await channels.turn()
        found = await self._store.get(WatchChannel, channel_id)
        same = Query(WatchChannel).where("watched_id", "==", calendar_id).order_by("expiration")
        live = [c for c in await self.page_of(same) if c.status == "active" and c.channel_id != channel_id]
        return StoppedResponse(
            channel_id=channel_id, calendar_id=calendar_id,
            stopped=found is None or found.doc.status != "active",
            replaced_by=live[0].channel_id if live else "",
        )  # fmt: skip

    @_operation("calendar_sync.sync_requested", verb="sync", needs="admin", subject="calendar_id")
    async def request_sync(self, by: Operator, calendar_id: str, *, full: bool = False) -> None:
        """Make a calendar due for a sync; NotFoundError for one that is not mapped."""

        async def act(tx: Transaction) -> None:
            found = await tx.get(CalendarState, calendar_id)
            if found is None:
                raise NotFoundError(
                    f"{calendar_id} is not mapped; `holdfast calendar-sync mappings` shows who is"
                )
            state = replace(found.doc, failures=0)
            tx.write(put(request_sync(state, self.engine.clock.now(), full=full)))

        await by.commit(act, details={"full": full})

    # -- reads ------------------------------------------------------------------------------------

    async def channel_status(
        self, only: ChannelFilter = "all", *, limit: int = 100, cursor: str | None = None
    ) -> StatusResponse:
        """Return channels, soonest end first, with the summary and the health of all."""
        status = None if only == "all" else only
        page = await self.engine.channels.status(status, limit=limit, cursor=cursor)
        health = (await self.engine.status()).response()
        return StatusResponse(
            channels=[channel_response(row) for row in page.rows], cursor=page.cursor, health=health,
            summary={"total": sum(health.channels.values()), **health.channels,
                     "warnings": await self.engine.channels.count_warnings()},
        )  # fmt: skip

    async def calendars(
        self, status: SyncStatus, *, limit: int = 100, cursor: str | None = None
    ) -> QueryPage[CalendarState]:
        """Return calendars in this sync state."""
        query = Query(CalendarState).where("status", "==", status).limit(limit).after(cursor)
        return await self._store.query(query)

    async def calendar(self, calendar_id: str) -> CalendarState:
        """Return one calendar's sync state or raise NotFoundError."""
        found = await self._store.get(CalendarState, calendar_id)
        if found is None:
            raise NotFoundError(f"{calendar_id} is not mapped")
        return found.doc

    async def page_of(self, query: Query[D]) -> list[D]:
        """Return the first page of a query of the service's own documents."""
        return (await self._store.query(query)).docs


async def _change_nothing(tx: Transaction) -> None:
    return None
