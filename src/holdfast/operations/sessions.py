"""Sessions of people in a browser: sign in, use a one-time link, sign out, change one's password."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import ForbiddenError, InvalidError
from holdfast.kit.access import LoginAttempt, LoginThrottle, SessionCaller, Sessions, SignInLinks, User, Users
from holdfast.kit.access.authorization import PERSON, PUBLIC, own_tenant
from holdfast.kit.access.oidc import Identity
from holdfast.kit.access.passwords import check_password, hash_password, rehash_password
from holdfast.kit.access.sign_in_links import Redeem, link_to
from holdfast.kit.access.users import normalize_name
from holdfast.operation import Operator, operation
from holdfast.runtime import Runtime
from holdfast.store import Transaction

UNKNOWN: Final = "somebody unknown"


async def throttle(runtime: Runtime, name: str, address: str) -> LoginAttempt:
    """Count an attempt before its password is looked at; TooManyRequestsError says how long to wait.

    Apart from the operations: attempts that are refused here are too many to record.
    """
    return await LoginThrottle(runtime.store).admit(normalize_name(name), address)


async def find_link(runtime: Runtime, code: str) -> str:
    """Whom a one-time link lets in, empty for the first person; UnverifiedError once it lets nobody in."""
    return await SignInLinks(runtime.store).check(code)


@operation("session.began", area="session", verb="create", needs=PUBLIC)
async def sign_in(
    runtime: Runtime, by: Operator, name: str, *, password: str, attempt: LoginAttempt | None = None
) -> str | None:
    """Begin a session and return its cookie; None, on record too, where name and password don't match."""
    users, name = Users(runtime.store), normalize_name(name)
    user = await users.verify(name, password)
    if user is None:
        # People type a password where the name belongs: what names nobody is not stored for good.
        subject = name if await users.exists(name) else UNKNOWN
        await by.append(action="session.refused", subject=subject, outcome="refused")
        return None
    if attempt is not None:
        await LoginThrottle(runtime.store).succeed(attempt)
    rehashed = await rehash_password(password, user.password)
    return await _as(by, user).commit(
        lambda tx: Sessions(runtime.store).begin(user, tx, rehashed=rehashed), subject=user.id
    )


async def start_sign_in(runtime: Runtime, issuer: str, *, after: str, browser: str) -> str:
    """The URL of an issuer to send a person to.

    Apart from the operations: strangers start too many to record.
    """
    return await runtime.oidc_sign_in.start(issuer, after=after, browser=browser)


async def finish_sign_in(runtime: Runtime, state: str, code: str, *, browser: str) -> tuple[Identity, str]:
    """Who came back from an issuer, once for each start, and where they go on."""
    return await runtime.oidc_sign_in.finish(state, code, browser=browser)


@operation("session.began", area="session", verb="create", needs=PUBLIC)
async def sign_in_with_identity(runtime: Runtime, by: Operator, identity: Identity) -> str:
    """Begin a session of somebody whom an issuer has identified, and return its cookie.

    Without a service that gives people roles by membership, only those whom the settings or the users
    name may come in.
    """
    user = await runtime.identities.user(identity)
    caller = await runtime.identities.caller(identity, user)
    if not caller.roles and runtime.roles is None:
        name = identity.email or identity.subject
        raise ForbiddenError(f"{name} is not known here; ask an administrator to add this name as a user")
    cookie, session = Sessions(runtime.store).write_identity(identity, caller, user=user)

    async def act(tx: Transaction) -> None:
        tx.write(session)

    own = msgspec.structs.replace(by, tenant_id=own_tenant(caller), actor=caller.user_id or UNKNOWN)
    await own.commit(act, subject=caller.user_id)
    return cookie


@operation("session.began", area="session", verb="create", needs=PUBLIC)
async def use_link(runtime: Runtime, by: Operator, code: str, *, name: str, password: str) -> str:
    """Set a password by a one-time link and begin a session: its cookie. Of many at once, one gets in."""

    async def commit(user: User, redeem: Redeem) -> tuple[User, str]:
        return await _as(by, user).commit(redeem, subject=user.id, across=True)

    _, cookie = await SignInLinks(runtime.store).redeem(code, name=name, password=password, commit=commit)
    return cookie


@operation("session.ended", area="session", verb="update", needs=PERSON)
async def sign_out(runtime: Runtime, by: Operator, *, everywhere: bool = False) -> None:
    """End this session, or every session of the person."""
    one = person(by)

    # The name of an identity is its issuer's word; only its verified address may be a user's.
    name = one.email if one.identity else one.name

    async def act(tx: Transaction) -> None:
        if everywhere and await Users(runtime.store).find(name, tx) is not None:
            await Users(runtime.store).end_sessions(name, tx)
        if everywhere and one.identity:
            await Sessions(runtime.store).end_all(one.user_id or "", tx)
        else:
            await Sessions(runtime.store).end(one.session_id, tx)

    action = "session.ended_everywhere" if everywhere else "session.ended"
    await _own(by).commit(act, action=action, subject=one.name, across=everywhere)


@operation("user.password_set", area="session", verb="update", needs="viewer")
async def change_password(
    runtime: Runtime, by: Operator, *, current: str, password: str, attempt: LoginAttempt | None = None
) -> str:
    """Set one's own password, end the other sessions and return the cookie of a new one.

    A session left open is not enough: the current password is needed.
    """
    one, users = person(by), Users(runtime.store)
    if one.identity:
        raise InvalidError("you signed in with an identity provider; there is no password to change here")
    check_password(password)
    if await users.verify(one.name, current) is None:
        raise InvalidError("the current password is another one", "current")
    if attempt is not None:
        await LoginThrottle(runtime.store).succeed(attempt)
    hashed = await hash_password(password)

    async def act(tx: Transaction) -> str:
        user = await users.set_password_hash(one.name, hashed, tx)
        cookie, session = Sessions(runtime.store).write(user)
        tx.write(session)
        return cookie

    return await _own(by).commit(act, subject=one.name)


@operation("user.link_made", area="users", verb="create", needs="owner", platform=True)
async def make_first_link(runtime: Runtime, by: Operator, *, address: str) -> str | None:
    """Make the one-time link that lets the first person in; None where somebody has come in already."""
    if await Users(runtime.store).any_exists():
        return None
    code = await by.commit(SignInLinks(runtime.store).first, subject="first link", across=True)
    return None if code is None else link_to("first", code, address)


def person(by: Operator) -> SessionCaller:
    """The signed-in person who acts; InvalidError for a token, which has no session and no password."""
    if not isinstance(by.caller, SessionCaller):
        raise InvalidError("only somebody who is signed in has a session and a password")
    return by.caller


def _own(by: Operator) -> Operator:
    """On the trail of the person's own tenant, whichever they look at."""
    return msgspec.structs.replace(by, tenant_id=own_tenant(by.caller))


def _as(by: Operator, user: User) -> Operator:
    return msgspec.structs.replace(by, tenant_id=user.tenant_id, actor=f"user:{user.id}")
