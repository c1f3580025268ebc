"""The service's routes: health for anybody, the rest for administrators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from litestar import MediaType, Request, Response
from litestar.di import NamedDependency
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, Operation, Schema
from litestar.openapi.spec.enums import OpenAPIType
from litestar.params import QueryParameter
from msgspec import Meta

from holdfast.errors import InvalidError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.authorization import has_role
from holdfast.routing import By, Cursor, RequestBody, action_route, read_route
from holdfast.services.calendar_sync.operations import AREA, DAY_MS, CalendarSync
from holdfast.services.calendar_sync.reports import (
    ChannelFilter,
    ForcedResponse,
    HealthResponse,
    PublicHealthResponse,
    RenewalResponse,
    StatusResponse,
    StoppedResponse,
)
from holdfast.services.calendar_sync.sync.mapping_store import ReloadResult
from holdfast.services.calendar_sync.table import as_table

ROWS_MAX: Final = 1_000
# Replacing thousands of channels takes as long as Google does.
LONG_S: Final = 600.0
T = TypeVar("T")
AnyRequest: TypeAlias = Request[Any, Any, Any]
Operations: TypeAlias = NamedDependency[CalendarSync]


@dataclass
class _AlsoAsText(Operation):
    """An OpenAPI operation whose response may also be plain text."""

    def __post_init__(self) -> None:
        response = (self.responses or {}).get("200")
        if isinstance(response, OpenAPIResponse) and response.content is not None:
            response.content["text/plain"] = OpenAPIMediaType(schema=Schema(type=OpenAPIType.STRING))


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
    """Decode the body; an absent one counts as an empty object."""
    try:
        return msgspec.json.decode(await request.body() or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as fault:
        raise InvalidError(str(fault)) from None


@read_route(
    "/health", "public", area=AREA, prefix="", recognize=True,
    answers={200: HealthResponse | PublicHealthResponse, 503: HealthResponse | PublicHealthResponse},
)  # fmt: skip
async def health(request: Request[Any, Any, Any], operations: Operations) -> Response[PublicHealthResponse]:
    """Status of the service; for viewers also mappings, channels by state, last renewal, last sync."""
    response = (await operations.engine.status()).response()
    caller = request.scope["state"].get("caller")
    known = caller is not None and has_role(caller, "viewer", NO_TENANT)
    told = response if known else PublicHealthResponse(status=response.status)
    return Response(told, status_code=503 if response.status == "critical" else 200)


@read_route(
    "/admin/channel-status",
    "admin",
    area=AREA,
    prefix="",
    platform=True,
    operation_class=_AlsoAsText,
    answers={200: StatusResponse},
)
async def channel_status(
    operations: Operations,
    form: Annotated[
        Literal["json", "table"], QueryParameter(name="format", description="JSON, or a table as plain text.")
    ] = "json",
    only: Annotated[
        ChannelFilter, QueryParameter(name="filter", description="Channels in this state alone.")
    ] = "all",
    limit: Annotated[int, QueryParameter(ge=1, le=ROWS_MAX)] = ROWS_MAX,
    cursor: Cursor = None,
) -> Response[StatusResponse | str]:
    """Channels with the time left to them, soonest end first, and how all of them are."""
    response = await operations.channel_status(only, limit=limit, cursor=cursor)
    if form == "table":
        return Response(as_table(response), media_type=MediaType.TEXT)
    return Response(response, media_type=MediaType.JSON)


@action_route("/admin/reload-mappings", CalendarSync.reload, prefix="")
async def reload_mappings(operations: Operations, by: By) -> ReloadResult:
    """Read the mappings from their source now."""
    return await operations.reload(by)


@action_route(
    "/admin/renew-expiring-channels", CalendarSync.renew, prefix="", time_limit_s=LONG_S, body=RenewRequest
)
async def renew_expiring_channels(operations: Operations, by: By, request: AnyRequest) -> RenewalResponse:
    """Renew channels that end soon, and stop those whose mapping is gone."""
    body = await read_body(request, RenewRequest)
    return await operations.renew(by, threshold_ms=body.expiration_threshold, dry_run=body.dry_run)


@action_route(
    "/admin/force-register-channels", CalendarSync.force, prefix="", time_limit_s=LONG_S, body=ForceRequest
)
async def force_register_channels(operations: Operations, by: By, request: AnyRequest) -> ForcedResponse:
    """Replace every channel by a new one, from the mappings; safe to repeat."""
    body = await read_body(request, ForceRequest)
    return await operations.force(by, reason=body.reason)


@action_route("/admin/stop-channel", CalendarSync.stop_channel, prefix="", body=StopRequest)
async def stop_channel(operations: Operations, by: By, request: AnyRequest) -> StoppedResponse:
    """Stop one channel; a calendar that is still mapped gets another first."""
    body = await read_body(request, StopRequest)
    return await operations.stop_channel(by, body.channel_id, reason=body.reason)


ROUTES: Final = (
    health, channel_status, reload_mappings, renew_expiring_channels, force_register_channels, stop_channel,
)  # fmt: skip
