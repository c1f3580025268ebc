"""The way to a provider and back: opening a start link, and the callback that makes a connection."""

from __future__ import annotations

import secrets
from typing import Any, Final

from litestar import Response, get
from litestar.datastructures import Cookie
from litestar.exceptions import MethodNotAllowedException
from litestar.handlers import HTTPRouteHandler

from holdfast.console.shell import AnyRequest, Shell
from holdfast.errors import UnverifiedError
from holdfast.kit import NO_TENANT
from holdfast.kit.access.authorization import PUBLIC
from holdfast.model.access import ANONYMOUS
from holdfast.operations import connections
from holdfast.web import CONSENT_CALLBACK, CONSENT_START, cookie_name, is_secure

COOKIE: Final = "holdfast_consent"
# Longer than a consent is valid, so that a callback that comes too late is told so.
COOKIE_S: Final = 3_600
_PATH: Final = CONSENT_START.rpartition("/")[0]
_PUBLIC: Final = {"needs": PUBLIC}


class ConsentPages:
    """Pages of people who connect an account; they need no session of the console."""

    def __init__(self, shell: Shell) -> None:
        self._shell, self._runtime = shell, shell.runtime
        self._stranger = self._runtime.operator(ANONYMOUS, NO_TENANT)
        self._secure = is_secure(self._runtime.config.public_url)
        self._cookie = cookie_name(COOKIE, secure=self._secure, path=_PATH)

    def pages(self) -> list[HTTPRouteHandler]:
        @get(CONSENT_START, opt=_PUBLIC, include_in_schema=False)
        async def start(request: AnyRequest) -> Response[Any]:
            return await self._start(request)

        @get(CONSENT_CALLBACK, opt=_PUBLIC, include_in_schema=False)
        async def callback(request: AnyRequest) -> Response[Any]:
            return await self._callback(request)

        return [start, callback]

    async def _start(self, request: AnyRequest) -> Response[Any]:
        _refuse_head(request)
        browser = request.cookies.get(self._cookie) or secrets.token_urlsafe(32)
        token = request.query_params.get("link", "")
        try:
            opened = await self._runtime.connections.open_link(token, bound_to=browser)
        except UnverifiedError as spent:
            return self._shell.error(request, 410, spent.message)
        cookie = Cookie(
            key=self._cookie, value=browser, max_age=COOKIE_S, path=_PATH, httponly=True, samesite="lax",
            secure=self._secure,
        )  # fmt: skip
        return Response(None, status_code=303, headers={"location": opened.url}, cookies=[cookie])

    async def _callback(self, request: AnyRequest) -> Response[Any]:
        _refuse_head(request)
        query, browser = request.query_params, request.cookies.get(self._cookie, "")
        try:
            granted = await self._runtime.connections.exchange(
                query.get("state", ""), query.get("code", ""), error=query.get("error", ""), bound_to=browser
            )
        except UnverifiedError as spent:
            return self._shell.error(request, 410, spent.message)
        connection = await connections.connect(self._runtime, self._stranger, granted)
        if granted.consent.return_path:
            return Response(None, status_code=303, headers={"location": granted.consent.return_path})
        # Not the document: what a template is not given it can't show.
        one = {name: getattr(connection, name) for name in ("name", "account", "provider", "refused")}
        data = {"title": "Connected", "fault": "", "one": one}
        return self._shell.html("connected.html", data, self._shell.frame(request))


def _refuse_head(request: AnyRequest) -> None:
    """Link previews ask for the head, which must not use up what works once."""
    if request.scope["state"].get("head"):
        raise MethodNotAllowedException("this link works once, so only GET opens it")
