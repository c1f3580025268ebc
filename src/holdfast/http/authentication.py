"""Reading who asks: one small reader for each kind of credentials, behind one protocol.

    Authorization: Bearer hf_…           TokenReader      an API token
    Authorization: Bearer eyJ….….…      OidcReader       an identity token of a known issuer
    Cookie: holdfast_session=…           SessionReader    a person signed in to the console

A request with an `Authorization` header is judged by it alone: a bad token never falls back to a cookie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from litestar.connection import ASGIConnection

from holdfast.errors import UnverifiedError
from holdfast.kit.access import ApiTokens, Sessions
from holdfast.kit.access.sessions import COOKIE
from holdfast.kit.access.tokens import PREFIX
from holdfast.model.access import Caller
from holdfast.web import cookie_name

Connection = ASGIConnection[Any, Any, Any, Any]


class Authenticated(msgspec.Struct, frozen=True):
    """Who asks, and for a browser's session the word that acts must repeat."""

    caller: Caller
    csrf: str | None = None


class Authenticator(Protocol):
    """One kind of credentials."""

    async def read(self, connection: Connection) -> Authenticated | None:
        """Who asks; None without credentials of this kind; `UnverifiedError` where they don't count."""
        ...


async def authenticate(readers: Sequence[Authenticator], connection: Connection) -> Authenticated:
    """The first reader that knows the credentials decides; nobody's are refused."""
    for reader in readers:
        found = await reader.read(connection)
        if found is not None:
            return found
    if "authorization" in connection.headers:
        raise UnverifiedError("these credentials are of no kind known here; send an API token: Bearer hf_…")
    raise UnverifiedError("sign in, or send an API token: Authorization: Bearer hf_…")


def bearer_of(headers: Mapping[str, str]) -> str:
    """The bearer token of a request; empty where there is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""


class TokenAuthenticator:
    def __init__(self, tokens: ApiTokens) -> None:
        self._tokens = tokens

    async def read(self, connection: Connection) -> Authenticated | None:
        token = bearer_of(connection.headers)
        if not token.startswith(PREFIX):
            return None
        caller = await self._tokens.verify(token)
        if caller is None:
            raise UnverifiedError("the token is not known here, has ended or was revoked")
        return Authenticated(caller)


LIVE_HEADER: Final = "x-live"


def _by_person(connection: Connection) -> bool:
    """Whether somebody asked; a page that keeps itself fresh says so, and so does its stream of changes."""
    stream = connection.headers.get("accept") == "text/event-stream"
    return not stream and LIVE_HEADER not in connection.headers


class SessionAuthenticator:
    """People signed in with a browser."""

    def __init__(self, sessions: Sessions, *, secure: bool) -> None:
        self._sessions, self._cookie = sessions, cookie_name(COOKIE, secure=secure)

    async def read(self, connection: Connection) -> Authenticated | None:
        cookie = connection.cookies.get(self._cookie)
        if "authorization" in connection.headers or cookie is None:
            return None
        caller = await self._sessions.verify(cookie, by_person=_by_person(connection))
        if caller is None:
            raise UnverifiedError("the session has ended; sign in again")
        return Authenticated(caller, caller.csrf)
