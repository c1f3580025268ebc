"""Signing in and out: with a password, with an identity provider, or by a link that works once."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
import structlog
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from holdfast.console.page_registry import HOME
from holdfast.console.shell import AnyRequest, Shell
from holdfast.errors import ForbiddenError, HoldfastError, InvalidError, RetryLaterError, UnverifiedError
from holdfast.kit import NO_TENANT
from holdfast.kit.access import COOKIE
from holdfast.kit.access.authorization import PUBLIC
from holdfast.kit.access.oidc_sign_in import CALLBACK
from holdfast.kit.access.passwords import check_password
from holdfast.kit.access.sessions import MAX_AGE_S
from holdfast.kit.connections.consents import TTL_S
from holdfast.model.access import ANONYMOUS
from holdfast.operations import sessions
from holdfast.routing import By, RequestBody, action_route
from holdfast.web import SIGN_IN, browser_cookie, cookie_name, is_secure, next_of, parse_form, status_of

log = structlog.get_logger("holdfast.console")

BROWSER_COOKIE: Final = "holdfast_sign_in"
_BROWSER: Final = re.compile(r"[A-Za-z0-9_-]{43}")
LINK_PATHS: Final = ["/sign-in/first", "/sign-in/link"]
_PUBLIC: Final = {"needs": PUBLIC}
_WRONG: Final = "That name and password don't match."


class SignedOut(msgspec.Struct, frozen=True, rename="camel"):
    signed_out: bool


class SignOutRequest(RequestBody, frozen=True):
    everywhere: bool = False


class ChangePassword(RequestBody, frozen=True):
    """`name` is there for browsers that keep passwords; the session says whose it is."""

    current: str
    password: str
    name: str = ""


class PasswordSet(msgspec.Struct, frozen=True):
    name: str


class SignIn:
    """The pages of people who are not signed in yet, and their session's buttons afterwards."""

    def __init__(self, shell: Shell) -> None:
        self._shell, self._runtime = shell, shell.runtime
        self._stranger = self._runtime.operator(ANONYMOUS, NO_TENANT)
        self._secure = is_secure(self._runtime.config.public_url)

    def pages(self) -> list[HTTPRouteHandler]:
        """The forms that a browser shows, and what it sends from them."""

        @get(SIGN_IN, opt=_PUBLIC, include_in_schema=False)
        async def show(request: AnyRequest) -> Response[str]:
            return self._form(request, next_of(request.query_params.get("next", HOME)))

        @post(SIGN_IN, opt=_PUBLIC, include_in_schema=False)
        async def enter(request: AnyRequest) -> Response[Any]:
            return await self._sign_in(request)

        @get(LINK_PATHS, opt=_PUBLIC, include_in_schema=False)
        async def show_link(request: AnyRequest) -> Response[str]:
            return await self._link_form(request, request.query_params.get("code", ""))

        @post(LINK_PATHS, opt=_PUBLIC, include_in_schema=False)
        async def use_link(request: AnyRequest) -> Response[Any]:
            return await self._use_link(request)

        @get("/sign-in/oidc", opt=_PUBLIC, include_in_schema=False)
        async def leave(request: AnyRequest) -> Response[Any]:
            return await self._send_to_issuer(request)

        @get(CALLBACK, opt=_PUBLIC, include_in_schema=False)
        async def come_back(request: AnyRequest) -> Response[Any]:
            return await self._come_back(request)

        return [show, enter, show_link, use_link, leave, come_back]

    def acts(self) -> list[HTTPRouteHandler]:
        """The buttons of people who are signed in."""

        @action_route("/sign-out", sessions.sign_out, prefix="", include_in_schema=False)
        async def sign_out(by: By, data: JSONBody[SignOutRequest]) -> Response[SignedOut]:
            await sessions.sign_out(self._runtime, by, everywhere=data.everywhere)
            return Response(SignedOut(True), cookies=[self._cookie("", 0)])

        @action_route("/sign-in/password", sessions.change_password, prefix="", include_in_schema=False)
        async def change_password(
            request: AnyRequest, by: By, data: JSONBody[ChangePassword]
        ) -> Response[PasswordSet]:
            name = sessions.person(by).name
            check_password(data.password)
            attempt = await sessions.throttle(self._runtime, name, request.scope["state"]["address"])
            cookie = await sessions.change_password(
                self._runtime, by, current=data.current, password=data.password, attempt=attempt
            )
            return Response(PasswordSet(name), cookies=[self._cookie(cookie, int(MAX_AGE_S))])

        return [sign_out, change_password]

    async def _sign_in(self, request: AnyRequest) -> Response[Any]:
        form = parse_form(await request.body())
        name, after = form.get("name", "").strip().lower()[:100], next_of(form.get("next", HOME))
        try:
            attempt = await sessions.throttle(self._runtime, name, request.scope["state"]["address"])
        except RetryLaterError as wait:
            said = f"Too many tries. Wait {max(1, round(wait.after_s))} s, then try again."
            return self._form(request, after, name=name, fault=said, status=429, wait_s=wait.after_s)
        cookie = await sessions.sign_in(
            self._runtime, self._stranger, name, password=form.get("password", ""), attempt=attempt
        )
        if cookie is None:
            return self._form(request, after, name=name, fault=_WRONG, status=401)
        return self._welcome(cookie, after)

    async def _send_to_issuer(self, request: AnyRequest) -> Response[Any]:
        """Send the browser to an issuer, with a secret of its own that it must bring back."""
        after = next_of(request.query_params.get("next", HOME))
        browser = self._browser(request)
        browser = browser if _BROWSER.fullmatch(browser) else secrets.token_urlsafe(32)
        try:
            url = await sessions.start_sign_in(
                self._runtime, request.query_params.get("issuer", ""), after=after, browser=browser
            )
        except RetryLaterError as fault:
            return self._unreachable(request, after, fault)
        return Response(
            None, status_code=303, headers={"location": url},
            cookies=[self._cookie(browser, int(TTL_S), key=BROWSER_COOKIE, path=SIGN_IN)],
        )  # fmt: skip

    async def _come_back(self, request: AnyRequest) -> Response[Any]:
        query = request.query_params
        if "error" in query or not query.get("code"):
            return self._form(request, HOME, fault="You were not signed in. Try again.", status=401)
        try:
            identity, after = await sessions.finish_sign_in(
                self._runtime, query.get("state", ""), query["code"],
                browser=self._browser(request),
            )  # fmt: skip
            cookie = await sessions.sign_in_with_identity(self._runtime, self._stranger, identity)
        except RetryLaterError as fault:
            return self._unreachable(request, HOME, fault)
        except (UnverifiedError, ForbiddenError) as fault:
            return self._form(request, HOME, fault=_sentence(fault), status=status_of(fault))
        return self._welcome(cookie, after)

    def _unreachable(self, request: AnyRequest, after: str, fault: RetryLaterError) -> Response[str]:
        log.warning("issuer unreachable", error=fault.message)
        said = "The identity provider can't be reached now. Try again later, or sign in another way."
        return self._form(request, after, fault=said, status=503, wait_s=max(1.0, fault.after_s))

    def _form(
        self, request: AnyRequest, after: str, *, name: str = "", fault: str = "", status: int = 200,
        wait_s: float = 0,
    ) -> Response[str]:  # fmt: skip
        issuers = [
            (one.label, f"{SIGN_IN}/oidc?{urlencode({'issuer': one.issuer, 'next': after})}")
            for one in self._runtime.oidc_sign_in.issuers.values()
        ]
        data = {"title": "Sign in", "next": after, "name": name, "fault": fault, "issuers": issuers}
        headers = {"retry-after": str(max(1, round(wait_s)))} if wait_s else None
        frame = self._shell.frame(request)
        return self._shell.html("sign_in.html", data, frame, status=status, headers=headers)

    async def _link_form(
        self, request: AnyRequest, code: str, *, name: str = "", fault: str = "", status: int = 200
    ) -> Response[str]:
        try:
            wanted = await sessions.find_link(self._runtime, code)
        except UnverifiedError as spent:
            return self._shell.error(request, 410, spent.message)
        data = {"title": "Welcome", "code": code, "wanted": wanted, "name": name, "fault": fault}
        return self._shell.html("link.html", data, self._shell.frame(request), status=status)

    async def _use_link(self, request: AnyRequest) -> Response[Any]:
        form = parse_form(await request.body())
        code, name, password = form.get("code", ""), form.get("name", "")[:200], form.get("password", "")
        try:
            # First, so that a stranger's guesses don't fill the audit trail.
            await sessions.find_link(self._runtime, code)
            if password != form.get("again", ""):
                raise InvalidError("the two passwords differ", "again")
            cookie = await sessions.use_link(
                self._runtime, self._stranger, code, name=name, password=password
            )
        except UnverifiedError as spent:
            return self._shell.error(request, 410, spent.message)
        except InvalidError as fault:
            return await self._link_form(request, code, name=name, fault=_sentence(fault), status=422)
        return self._welcome(cookie, HOME)

    def _welcome(self, cookie: str, after: str) -> Response[None]:
        return Response(
            None, status_code=303, headers={"location": after}, cookies=[self._cookie(cookie, int(MAX_AGE_S))]
        )

    def _browser(self, request: AnyRequest) -> str:
        return request.cookies.get(cookie_name(BROWSER_COOKIE, secure=self._secure, path=SIGN_IN), "")

    def _cookie(self, value: str, max_age_s: int, *, key: str = COOKIE, path: str = "/") -> Cookie:
        return browser_cookie(key, value, max_age_s=max_age_s, secure=self._secure, path=path)


def _sentence(fault: HoldfastError) -> str:
    return f"{fault.message[0].upper()}{fault.message[1:]}."
