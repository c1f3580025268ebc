"""Signing in and out: by name and password, or once by a link."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs

import msgspec
from litestar import Response, get, post
from litestar.datastructures import Cookie
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody

from holdfast.console.page_registry import HOME
from holdfast.console.shell import AnyRequest, Shell
from holdfast.errors import HoldfastError, InvalidError, RetryLaterError, TooLargeError, UnverifiedError
from holdfast.http.csrf import next_of
from holdfast.kit import NO_TENANT
from holdfast.kit.access import COOKIE, LoginThrottle, SessionCaller, Sessions, SignInLinks, User, Users
from holdfast.kit.access.passwords import check_password, hash_password
from holdfast.kit.access.sessions import MAX_AGE_S
from holdfast.kit.access.sign_in_links import link_to
from holdfast.kit.access.users import normalize_name
from holdfast.kit.audit import Audit, AuditEntry
from holdfast.operations.act import append_audit, run_audited
from holdfast.runtime import Runtime
from holdfast.store import Transaction

FORM_BYTES_MAX: Final = 10_000
LINK_PATHS: Final = ["/sign-in/first", "/sign-in/link"]
_PUBLIC: Final = {"needs": "public"}
_WRONG: Final = "That name and password don't go together."


class SignedOut(msgspec.Struct, frozen=True, rename="camel"):
    signed_out: bool


class Leaving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    everywhere: bool = False


class NewPassword(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`name` is there for browsers that keep passwords; whose it is, the session says."""

    current: str
    password: str
    name: str = ""


class PasswordSet(msgspec.Struct, frozen=True):
    name: str


class SignIn:
    """The pages of people who are not in yet, and of those who leave."""

    def __init__(self, shell: Shell) -> None:
        self._shell, self._runtime = shell, shell.runtime
        store = self._runtime.store
        self._users, self._links, self._sessions = Users(store), SignInLinks(store), Sessions(store)
        self._tries = LoginThrottle(store)

    def pages(self) -> list[HTTPRouteHandler]:
        """What a browser shows."""

        @get("/sign-in", opt=_PUBLIC, include_in_schema=False)
        async def show(request: AnyRequest) -> Response[str]:
            return self._form(request, next_of(request.query_params.get("next", HOME)))

        @post("/sign-in", opt=_PUBLIC, include_in_schema=False)
        async def enter(request: AnyRequest) -> Response[Any]:
            return await self._enter(request)

        @get(LINK_PATHS, opt=_PUBLIC, include_in_schema=False)
        async def show_link(request: AnyRequest) -> Response[str]:
            return await self._link_form(request, request.query_params.get("code", ""))

        @post(LINK_PATHS, opt=_PUBLIC, include_in_schema=False)
        async def use_link(request: AnyRequest) -> Response[Any]:
            return await self._use_link(request)

        return [show, enter, show_link, use_link]

    def acts(self) -> list[HTTPRouteHandler]:
        """What buttons of those who are in do."""
        opt = {"needs": "viewer", "area": "session", "action": "update"}

        @post("/sign-out", opt=opt, status_code=200, include_in_schema=False)
        async def leave(request: AnyRequest, data: JSONBody[Leaving]) -> Response[SignedOut]:
            return await self._leave(request, everywhere=data.everywhere)

        @post("/sign-in/password", opt=opt, status_code=200, include_in_schema=False)
        async def renew(request: AnyRequest, data: JSONBody[NewPassword]) -> Response[PasswordSet]:
            return await self._renew(request, data)

        return [leave, renew]

    # -- by password --------------------------------------------------------------------------------

    async def _enter(self, request: AnyRequest) -> Response[Any]:
        form = await _form_of(request)
        name, after = normalize_name(form.get("name", ""))[:100], next_of(form.get("next", HOME))
        try:
            await self._tries.admit(name, request.scope["state"]["address"])
        except RetryLaterError as wait:
            said = f"Too many tries. Wait {max(1, round(wait.after_s))} s, then try again."
            return self._form(request, after, name=name, fault=said, status=429, wait_s=wait.after_s)
        user = await self._users.verify(name, form.get("password", ""))
        if user is None:
            # People type a password where the name belongs: what names nobody is not written down for good.
            who = name if await self._users.exists(name) else "somebody unknown"
            await append_audit(
                self._runtime, NO_TENANT, actor="nobody", action="session.refused", subject=who
            )
            return self._form(request, after, name=name, fault=_WRONG, status=401)
        await self._tries.reset(name)
        cookie = await run_audited(
            self._runtime, user.tenant_id, lambda tx: self._sessions.begin(user, tx), actor=f"user:{user.id}",
            action="session.began", subject=user.id,
        )  # fmt: skip
        return self._welcome(cookie, after)

    def _form(
        self, request: AnyRequest, after: str, *, name: str = "", fault: str = "", status: int = 200,
        wait_s: float = 0,
    ) -> Response[str]:  # fmt: skip
        data = {"title": "Sign in", "next": after, "name": name, "fault": fault}
        headers = {"retry-after": str(max(1, round(wait_s)))} if wait_s else None
        frame = self._shell.frame(request)
        return self._shell.html("sign_in.html", data, frame, status=status, headers=headers)

    # -- by link ------------------------------------------------------------------------------------

    async def _link_form(
        self, request: AnyRequest, code: str, *, name: str = "", fault: str = "", status: int = 200
    ) -> Response[str]:
        try:
            wanted = await self._links.check(code)
        except UnverifiedError as spent:
            return self._shell.error(request, 410, spent.message)
        data = {"title": "Welcome", "code": code, "wanted": wanted, "name": name, "fault": fault}
        return self._shell.html("link.html", data, self._shell.frame(request), status=status)

    async def _use_link(self, request: AnyRequest) -> Response[Any]:
        form = await _form_of(request)
        code, name = form.get("code", ""), form.get("name", "")[:200]
        try:
            if form.get("password", "") != form.get("again", ""):
                raise InvalidError("the two passwords differ", "again")
            password = form.get("password", "")
            _, cookie = await self._links.redeem(code, name=name, password=password, also=self._note_began)
        except UnverifiedError as spent:
            return self._shell.error(request, 410, spent.message)
        except InvalidError as fault:
            return await self._link_form(request, code, name=name, fault=_sentence(fault), status=422)
        return self._welcome(cookie, HOME)

    async def _note_began(self, tx: Transaction, user: User) -> None:
        entry = AuditEntry(action="session.began", actor=f"user:{user.id}", subject=user.id)
        await Audit(self._runtime.store, user.tenant_id).add(tx, entry)

    # -- both ---------------------------------------------------------------------------------------

    def _welcome(self, cookie: str, after: str) -> Response[None]:
        return Response(
            None, status_code=303, headers={"location": after}, cookies=[self._cookie(cookie, int(MAX_AGE_S))]
        )

    async def _leave(self, request: AnyRequest, *, everywhere: bool) -> Response[SignedOut]:
        caller = _person(request)

        async def leave(tx: Transaction) -> None:
            if everywhere:
                await self._users.end_sessions(caller.name, tx)
            await self._sessions.end(caller.session_id, tx)

        await run_audited(
            self._runtime, next(iter(caller.roles)), leave, actor=str(caller.user_id),
            action="session.ended_everywhere" if everywhere else "session.ended", subject=caller.name,
        )  # fmt: skip
        return Response(SignedOut(True), cookies=[self._cookie("", 0)])

    async def _renew(self, request: AnyRequest, wanted: NewPassword) -> Response[PasswordSet]:
        """A new password for who knows the old one: a session left open is not enough."""
        caller = _person(request)
        check_password(wanted.password)
        await self._tries.admit(caller.name, request.scope["state"]["address"])
        if await self._users.verify(caller.name, wanted.current) is None:
            raise InvalidError("the password you have is another one", "current")
        await self._tries.reset(caller.name)
        kept = await hash_password(wanted.password)

        async def renew(tx: Transaction) -> str:
            user = await self._users.set_password_hash(caller.name, kept, tx)
            cookie, began = self._sessions.write(user)
            tx.write(began)
            return cookie

        cookie = await run_audited(
            self._runtime, next(iter(caller.roles)), renew, actor=str(caller.user_id),
            action="user.password_set", subject=caller.name,
        )  # fmt: skip
        return Response(PasswordSet(caller.name), cookies=[self._cookie(cookie, int(MAX_AGE_S))])

    def _cookie(self, value: str, max_age_s: int) -> Cookie:
        return Cookie(
            key=COOKIE, value=value, max_age=max_age_s, path="/", httponly=True, samesite="lax",
            secure=self._runtime.config.public_url.startswith("https:"),
        )  # fmt: skip


def _person(request: AnyRequest) -> SessionCaller:
    caller = request.scope["state"]["caller"]
    if not isinstance(caller, SessionCaller):
        raise InvalidError("only somebody who is signed in has a session and a password")
    return caller


async def _form_of(request: AnyRequest) -> dict[str, str]:
    """The fields of a small form. Anything else is no form of ours."""
    raw = await request.body()
    if len(raw) > FORM_BYTES_MAX:
        raise TooLargeError(f"a form takes at most {FORM_BYTES_MAX:,} bytes")
    try:
        fields = parse_qs(raw.decode("ascii"), keep_blank_values=True, max_num_fields=20, errors="strict")
    except ValueError:
        raise InvalidError("this is no form that can be read") from None
    return {name: values[-1] for name, values in fields.items()}


def _sentence(fault: HoldfastError) -> str:
    return f"{fault.message[0].upper()}{fault.message[1:]}."


async def first_link(runtime: Runtime, address: str) -> str | None:
    """The one-time link that lets the first person in; None where somebody has come in already.

    Example: `print(await first_link(runtime, "http://127.0.0.1:8000"))`
    """
    code = await SignInLinks(runtime.store).first()
    return None if code is None else link_to("first", code, address)
