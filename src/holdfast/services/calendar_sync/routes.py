"""The service's routes: health for anybody, the rest for administrators; each act is audited."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from litestar import MediaType, Request, Response, get, post
from litestar.di import NamedDependency
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import QueryParameter
from msgspec import Meta

from holdfast.errors import InvalidError
from holdfast.routing import RequestBody
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.services.calendar_sync.reports import (
    Filter,
    ForcedResponse,
    HealthResponse,
    RenewalResponse,
    StatusResponse,
    StoppedResponse,
    channel_response,
    renewal_response,
)
from holdfast.services.calendar_sync.sync.mapping_store import Reloaded
from holdfast.services.calendar_sync.table import as_table

AREA: Final = "calendar-sync"
DAY_MS: Final = 86_400_000
ROWS_MAX: Final = 1_000
LONG_S: Final = 600.0
T = TypeVar("T")
AnyRequest = Request[Any, Any, Any]


@dataclass
class _AlsoAsText(Operation):
    """A route that people may also have its answer from as plain text."""

    def __post_init__(self) -> None:
        answer = (self.responses or {}).get("200")
        if isinstance(answer, OpenAPIResponse) and answer.content is not None:
            answer.content["text/plain"] = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))


class RenewRequest(RequestBody, frozen=True):
    """`expirationThreshold` is in milliseconds: channels that end within it are renewed."""

    dry_run: bool = False
    expiration_threshold: Annotated[int, Meta(ge=0, le=366 * DAY_MS)] = DAY_MS


class ForceRequest(RequestBody, frozen=True):
    reason: Annotated[str, Meta(max_length=500)] = ""


class StopRequest(RequestBody, frozen=True):
    channel_id: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9\-_+/=]+$")]
    reason: Annotated[str, Meta(max_length=500)] = ""


async def read_body(request: AnyRequest, kind: type[T]) -> T:
    """The body as a `kind`; none at all is the same as an empty object."""
    body = await request.body()
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise InvalidError(str(fault)) from None


def _needs(needs: str, action: str) -> Mapping[str, Any]:
    declared = {"needs": needs, "area": AREA, "action": action, "platform": needs != "public"}
    # Replacing thousands of channels takes as long as Google does.
    return declared | ({"time_limit_s": LONG_S} if action in ("renew", "force") else {})


def routes_of(operations: CalendarSync) -> list[Any]:
    """Every route, bound to one keeper."""
    return [*_reading(operations), *_acting(operations)]


def _reading(operations: CalendarSync) -> list[Any]:
    @get("/health", opt=_needs("public", "read"), security=[], operation_id="calendarSyncHealth")
    async def health() -> Response[HealthResponse]:
        """How the service is doing: mappings, channels by state, last renewal, last sync."""
        told = (await operations.look()).told()
        return Response(told, status_code=503 if told.status == "critical" else 200)

    @get(
        "/admin/channel-status", opt=_needs("admin", "read"),
        operation_id="calendarSyncChannelStatus", operation_class=_AlsoAsText,
    )  # fmt: skip
    async def channel_status(
        form: Annotated[Literal["json", "table"], QueryParameter(name="format")] = "json",
        only: Annotated[Filter, QueryParameter(name="filter")] = "all",
        limit: Annotated[int, QueryParameter(ge=1, le=ROWS_MAX)] = ROWS_MAX,
        cursor: Annotated[str | None, QueryParameter(max_length=4_000)] = None,
    ) -> Response[StatusResponse | str]:
        """Channels with the time left to them, soonest end first, and how all of them are."""
        page = await operations.listing(only, limit=limit, cursor=cursor)
        look = (await operations.look()).told()
        told = StatusResponse(
            channels=[channel_response(row) for row in page.rows], cursor=page.cursor, health=look,
            summary={"total": sum(look.channels.values()), **look.channels,
                     "warnings": sum(row.warning for row in page.rows)},
        )  # fmt: skip
        if form == "table":
            return Response(as_table(told), media_type=MediaType.TEXT)
        return Response(told, media_type=MediaType.JSON)

    return [health, channel_status]


def _acting(operations: CalendarSync) -> list[Any]:
    @post(
        "/admin/reload-mappings", opt=_needs("admin", "reload"), status_code=200,
        operation_id="calendarSyncReloadMappings",
    )  # fmt: skip
    async def reload_mappings(actor: NamedDependency[str]) -> Reloaded:
        """Read the mappings from their source now."""
        reloaded = await operations.reload()
        counts = {"mappings": reloaded.mappings, "added": reloaded.added, "changed": reloaded.changed,
                  "removed": reloaded.removed, "badRows": len(reloaded.bad_rows)}  # fmt: skip
        await operations.note("mappings_reloaded", actor=actor, details=counts)
        return reloaded

    @post(
        "/admin/renew-expiring-channels", opt=_needs("admin", "renew"), status_code=200,
        operation_id="calendarSyncRenewExpiringChannels",
    )  # fmt: skip
    async def renew(request: AnyRequest, actor: NamedDependency[str]) -> RenewalResponse:
        """Renew channels that end soon, and stop those whose mapping is gone."""
        asked = await read_body(request, RenewRequest)
        told = renewal_response(
            await operations.renew(threshold_ms=asked.expiration_threshold, dry_run=asked.dry_run)
        )
        await operations.note(
            "channels_renewed", actor=actor, details={**told.summary, "dryRun": asked.dry_run}
        )
        return told

    @post(
        "/admin/force-register-channels", opt=_needs("admin", "force"), status_code=200,
        operation_id="calendarSyncForceRegisterChannels",
    )  # fmt: skip
    async def force(request: AnyRequest, actor: NamedDependency[str]) -> ForcedResponse:
        """Replace every channel by a new one, from the mappings; safe to repeat."""
        asked = await read_body(request, ForceRequest)
        told = await operations.force(asked.reason)
        counts = {"registered": told.registered, "stopped": told.stopped, "failed": told.failed}
        await operations.note("channels_forced", actor=actor, details={"reason": asked.reason, **counts})
        return told

    @post(
        "/admin/stop-channel", opt=_needs("admin", "stop"), status_code=200,
        operation_id="calendarSyncStopChannel",
    )  # fmt: skip
    async def stop(request: AnyRequest, actor: NamedDependency[str]) -> StoppedResponse:
        """Stop one channel; a calendar that is still mapped gets another first."""
        asked = await read_body(request, StopRequest)
        told = await operations.stop_channel(asked.channel_id)
        details = {"reason": asked.reason, "calendarId": told.calendar_id}
        await operations.note("channel_stopped", actor=actor, subject=asked.channel_id, details=details)
        return told

    return [reload_mappings, renew, force, stop]
