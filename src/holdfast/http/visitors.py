"""Visitors of services: the cookies that a request came with, and those that its response sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from holdfast.config import Config
from holdfast.errors import UnverifiedError
from holdfast.http.authentication import Authenticated, Connection
from holdfast.kit.access import CurrentVisitor
from holdfast.kit.access.visitors import PREFERENCES_BYTES_MAX, VISIT_S
from holdfast.runtime import Runtime
from holdfast.service import Service
from holdfast.web import cookie_name

VISITOR_STATE: Final = "visitor"
PREFERENCES_S: Final = 365 * 86_400.0
_COOKIES: Final = "visitor_cookies"


class VisitorCookies(msgspec.Struct, frozen=True):
    """The cookies of one service's visitors: their names, and the path and scheme they are sent to."""

    session: str
    path: str
    secure: bool
    sent_preferences: str = ""

    @property
    def preferences(self) -> str:
        return f"{self.session}_preferences"

    def header(
        self, name: str, value: str, max_age_s: float, *, same_site: str = "Strict"
    ) -> tuple[bytes, bytes]:
        """`Set-Cookie` with this value; an empty one removes the cookie."""
        words = [f"{name}={value}", f"Path={self.path}", f"Max-Age={int(max_age_s) if value else 0}"]
        words += ["HttpOnly", f"SameSite={same_site}", *(["Secure"] if self.secure else [])]
        return b"set-cookie", "; ".join(words).encode("ascii")


def cookies_of(service: Service, config: Config, *, at_root: bool) -> VisitorCookies:
    """The cookies of a service, by name and path, so that those of services beside one another don't mix."""
    path = "/" if at_root else f"/{service.address}"
    secure = config.environment != "development"
    return VisitorCookies(cookie_name(f"{service.name}_visitor", secure=secure, path=path), path, secure)


class VisitorReader:
    """Reads a request's visitor once, and as an `Authenticator` refuses requests without one."""

    def __init__(self, runtime: Runtime, *, at_root: bool) -> None:
        self._sessions = runtime.visitors
        self._cookies = {s.name: cookies_of(s, runtime.config, at_root=at_root) for s in runtime.services}

    async def current(self, connection: Connection) -> CurrentVisitor:
        """The request's visitor; nobody without a cookie, or on a route of no service."""
        state = connection.scope["state"]
        if VISITOR_STATE not in state:
            state[VISITOR_STATE] = await self._read(connection)
        visitor: CurrentVisitor = state[VISITOR_STATE]
        return visitor

    async def _read(self, connection: Connection) -> CurrentVisitor:
        service = connection.route_handler.opt.get("service", "")
        cookies = self._cookies.get(service)
        if cookies is None:
            return CurrentVisitor()
        session = connection.cookies.get(cookies.session)
        visitor = CurrentVisitor() if session is None else await self._sessions[service].verify(session)
        preferences = connection.cookies.get(cookies.preferences, "")
        if len(preferences) <= PREFERENCES_BYTES_MAX:
            visitor.preferences = unquote(preferences, errors="ignore")
        connection.scope["state"][_COOKIES] = msgspec.structs.replace(
            cookies, sent_preferences=visitor.preferences
        )
        return visitor

    async def read(self, connection: Connection) -> Authenticated | None:
        visitor = await self.current(connection)
        if visitor.caller is None:
            raise UnverifiedError("sign in first; without a session this is not possible")
        return Authenticated(visitor.caller)


def set_cookies(state: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """The headers that the response to a request with this state needs for its visitor."""
    visitor, cookies = state.get(VISITOR_STATE), state.get(_COOKIES)
    if visitor is None or cookies is None:
        return []
    headers = []
    if visitor.cookie is not None:
        headers.append(cookies.header(cookies.session, visitor.cookie, VISIT_S))
    if visitor.preferences != cookies.sent_preferences:
        # Nobody's secret: a link from another site should find the page as its reader wants it.
        text = quote(visitor.preferences)
        headers.append(cookies.header(cookies.preferences, text, PREFERENCES_S, same_site="Lax"))
    return headers
