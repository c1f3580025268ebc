"""Visitors of services: the session cookie that a request came with, and the one its response sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.config import Config
from holdfast.errors import UnverifiedError
from holdfast.http.authentication import Authenticated, Connection
from holdfast.kit.access import CurrentVisitor
from holdfast.kit.access.visitors import VISIT_S
from holdfast.runtime import Runtime
from holdfast.service import Service

VISITOR_STATE: Final = "visitor"
_PLACE: Final = "visitor_cookie"


class CookiePlace(msgspec.Struct, frozen=True):
    """The cookie of one service's visitors: its name, and the path and scheme it is sent to."""

    name: str
    path: str
    secure: bool

    def header(self, value: str) -> bytes:
        """`Set-Cookie` with this value; an empty one removes the cookie."""
        words = [f"{self.name}={value}", f"Path={self.path}", f"Max-Age={int(VISIT_S) if value else 0}"]
        words += ["HttpOnly", "SameSite=Strict", *(["Secure"] if self.secure else [])]
        return "; ".join(words).encode("ascii")


def cookie_place(service: Service, config: Config, *, at_root: bool) -> CookiePlace:
    """Where a service's cookie goes. By name and path, so that services beside one another don't mix."""
    path = "/" if at_root else f"/{service.address}"
    return CookiePlace(f"{service.name}_visitor", path, config.environment != "development")


class VisitorReader:
    """Reads a request's visitor once, and as an `Authenticator` refuses requests without one."""

    def __init__(self, runtime: Runtime, *, at_root: bool) -> None:
        self._sessions = runtime.visitors
        self._places = {s.name: cookie_place(s, runtime.config, at_root=at_root) for s in runtime.services}

    async def current(self, connection: Connection) -> CurrentVisitor:
        """The request's visitor; nobody without a cookie, or on a route of no service."""
        state = connection.scope["state"]
        if VISITOR_STATE not in state:
            state[VISITOR_STATE] = await self._read(connection)
        visitor: CurrentVisitor = state[VISITOR_STATE]
        return visitor

    async def _read(self, connection: Connection) -> CurrentVisitor:
        service = connection.route_handler.opt.get("service", "")
        place = self._places.get(service)
        if place is None:
            return CurrentVisitor()
        connection.scope["state"][_PLACE] = place
        cookie = connection.cookies.get(place.name)
        return await self._sessions[service].verify(cookie) if cookie is not None else CurrentVisitor()

    async def read(self, connection: Connection) -> Authenticated | None:
        visitor = await self.current(connection)
        if visitor.caller is None:
            raise UnverifiedError("sign in first; without a session this is not possible")
        return Authenticated(visitor.caller)


def set_cookie(state: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """The header that the response to a request with this state needs for its visitor, if any."""
    visitor, place = state.get(VISITOR_STATE), state.get(_PLACE)
    if visitor is None or place is None or visitor.cookie is None:
        return []
    return [(b"set-cookie", place.header(visitor.cookie))]
