"""The service's routes: its status for anybody, the parser, and what operators do to chats."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, PathParameter
from msgspec import Meta

from holdfast.routing import By, RequestBody, action_route, call_route, put_route, read_route
from holdfast.services.c4lendar.models import BotChat, BotEvent, GoogleConnection
from holdfast.services.c4lendar.operations import AREA, ChatOperations, find_zone
from holdfast.services.c4lendar.reports import ParseResponse, parse_response

Operations: TypeAlias = NamedDependency[ChatOperations]
GoogleAccount: TypeAlias = Annotated[str, PathParameter(description="The account's `sub` at Google.")]
EventUid: TypeAlias = Annotated[str, PathParameter(description="The event's uid.")]
_CHAT: Final = "/chats/{chat_id:str}"


class ParseRequest(RequestBody, frozen=True):
    """`now` is an instant; the default is the server's time."""

    text: Annotated[str, Meta(max_length=4_000)]
    now: datetime | None = None
    time_zone: Annotated[str, Meta(max_length=60)] = "UTC"


class TimeZoneRequest(RequestBody, frozen=True):
    time_zone: Annotated[str, Meta(max_length=60)]


class ServiceStatus(msgspec.Struct, frozen=True):
    """The state of the service."""

    status: str
    service: str = "c4lendar"


@read_route("/", "public", area=AREA, prefix="")
async def status() -> ServiceStatus:
    """Whether the service answers."""
    return ServiceStatus("ok")


@call_route("/parse", "viewer", area=AREA, action="parse", prefix="")
async def parse_text(operations: Operations, data: JSONBody[ParseRequest]) -> ParseResponse:
    """Return what the parser understands of a text."""
    zone = ZoneInfo(find_zone(data.time_zone))
    now = data.now or operations.clock.now()
    return parse_response(data.text, now=now if now.tzinfo else now.replace(tzinfo=zone), zone=zone)


@action_route(f"{_CHAT}/approve", ChatOperations.approve_chat, prefix="")
async def approve(operations: Operations, by: By, chat_id: FromPath[str]) -> BotChat:
    """Let a chat use the bot."""
    return await operations.approve_chat(by, chat_id)


@action_route(f"{_CHAT}/revoke", ChatOperations.revoke_chat, prefix="")
async def revoke(operations: Operations, by: By, chat_id: FromPath[str]) -> BotChat:
    """Stop serving a chat."""
    return await operations.revoke_chat(by, chat_id)


@put_route(f"{_CHAT}/time-zone", ChatOperations.set_time_zone, prefix="")
async def set_time_zone(
    operations: Operations, by: By, chat_id: FromPath[str], data: JSONBody[TimeZoneRequest]
) -> BotChat:
    """Set the zone in which a chat's texts are read."""
    return await operations.set_time_zone(by, chat_id, time_zone=data.time_zone)


@action_route("/accounts/{google_sub:str}/disconnect", ChatOperations.disconnect, prefix="")
async def disconnect(operations: Operations, by: By, google_sub: GoogleAccount) -> GoogleConnection:
    """Disconnect an account from the chat that is the tenant."""
    return await operations.disconnect(by, google_sub)


@action_route("/events/{uid:str}/retry", ChatOperations.retry_event, prefix="")
async def retry(operations: Operations, by: By, uid: EventUid) -> BotEvent:
    """Bring an event into the accounts that failed, now."""
    return await operations.retry_event(by, uid)


ROUTES: Final[tuple[Any, ...]] = (status, parse_text, approve, revoke, set_time_zone, disconnect, retry)
