"""People who sign in here: list, add, link, disable, enable, sign out, set a password.

For administrators of the platform, who give and change no more than they have themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.errors import ForbiddenError, InvalidError
from holdfast.kit import NO_TENANT
from holdfast.kit.access import SignInLinks, User, UserRole, Users
from holdfast.kit.access.authorization import has_role
from holdfast.kit.access.passwords import hash_password
from holdfast.kit.access.sign_in_links import link_to
from holdfast.model import Caller
from holdfast.operation import Operator, operation
from holdfast.projection import project
from holdfast.runtime import Runtime
from holdfast.store import Transaction

UserName = Annotated[str, Meta(min_length=1, max_length=100)]


class UserRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    name: str
    role: UserRole
    tenant_id: str
    created_at: datetime
    created_by: str
    last_seen_at: datetime | None
    disabled_at: datetime | None


class UserPage(msgspec.Struct, frozen=True):
    items: list[UserRow]
    cursor: str | None


class AddedUser(UserRow, frozen=True, kw_only=True, rename="camel"):
    """A new person, with the link by which they come in and choose a password, once, within an hour."""

    url: str


class OneTimeLink(msgspec.Struct, frozen=True):
    url: str


def row(user: User) -> UserRow:
    return project(user, UserRow, name=user.id)


async def list_users(
    runtime: Runtime, *, name: str = "", limit: int = 50, cursor: str | None = None
) -> UserPage:
    """People of every tenant, newest first; with `name`, those who have it in theirs.

    A search looks at 5,000 people; where there are more, the cursor continues it.
    """
    users = Users(runtime.store)
    found, after = await (
        users.search(name, limit=limit, cursor=cursor) if name else users.page(limit=limit, cursor=cursor)
    )
    return UserPage([row(user) for user in found], after)


@operation("user.added", area="users", verb="create", needs="admin", subject="name", platform=True)
async def add(
    runtime: Runtime, by: Operator, name: str, *, role: UserRole, tenant_id: str = NO_TENANT, address: str
) -> AddedUser:
    """Add a person without a password; a one-time link at this address lets them in."""
    _require_reach(by.caller, role)
    runtime.store.tenant(tenant_id)  # refuses an id that no tenant can have
    users = Users(runtime.store)
    user = await users.build(name, role=role, tenant_id=tenant_id, password=None, created_by=by.actor)
    code, link = SignInLinks(runtime.store).write(user, created_by=by.actor)

    async def act(tx: Transaction) -> None:
        await users.insert(user, tx)
        tx.write(link)

    await by.commit(act, subject=user.id, details={"role": role, "tenant": tenant_id}, across=True)
    return AddedUser(**msgspec.structs.asdict(row(user)), url=link_to("link", code, address))


@operation("user.link_made", area="users", verb="update", needs="admin", subject="name", platform=True)
async def make_link(runtime: Runtime, by: Operator, name: str, *, address: str) -> OneTimeLink:
    """Make a link with which the person sets a new password, once, within an hour."""
    user = await _reach(runtime, by, name)
    links = SignInLinks(runtime.store)
    code = await by.commit(
        lambda tx: links.create(user.id, tx, created_by=by.actor), subject=user.id, across=True
    )
    return OneTimeLink(link_to("link", code, address))


@operation("user.disabled", area="users", verb="update", needs="admin", subject="name", platform=True)
async def disable(runtime: Runtime, by: Operator, name: str) -> UserRow:
    """End the person's sessions at once and let them in no more."""
    user = await _reach(runtime, by, name)
    if by.actor == f"user:{user.id}":
        raise InvalidError("nobody disables themselves: another administrator can", "name")
    return await _change(runtime, by, lambda users, tx: users.disable(user.id, tx), user)


@operation("user.enabled", area="users", verb="update", needs="admin", subject="name", platform=True)
async def enable(runtime: Runtime, by: Operator, name: str) -> UserRow:
    """Let a disabled person in again."""
    user = await _reach(runtime, by, name)
    return await _change(runtime, by, lambda users, tx: users.enable(user.id, tx), user)


@operation(
    "session.ended_everywhere", area="users", verb="update", needs="admin", subject="name", platform=True
)
async def sign_out(runtime: Runtime, by: Operator, name: str) -> UserRow:
    """End every session of the person, on every device; they may sign in again."""
    user = await _reach(runtime, by, name)
    return await _change(runtime, by, lambda users, tx: users.end_sessions(user.id, tx), user)


@operation("user.password_set", area="users", verb="update", needs="admin", subject="name", platform=True)
async def set_password(runtime: Runtime, by: Operator, name: str, *, password: str) -> UserRow:
    """Set the person's password and end their sessions."""
    user = await _reach(runtime, by, name)
    hashed = await hash_password(password)
    return await _change(runtime, by, lambda users, tx: users.set_password_hash(user.id, hashed, tx), user)


async def _reach(runtime: Runtime, by: Operator, name: str) -> User:
    user = await Users(runtime.store).get(name)
    _require_reach(by.caller, user.role)
    return user


def _require_reach(caller: Caller, role: str) -> None:
    if not has_role(caller, role, NO_TENANT):
        raise ForbiddenError(
            f"only a caller with the role {role} may do this to a person with it", needs=(role,)
        )


async def _change(
    runtime: Runtime, by: Operator, act: Callable[[Users, Transaction], Awaitable[User]], user: User
) -> UserRow:
    users = Users(runtime.store)
    return row(await by.commit(lambda tx: act(users, tx), subject=user.id, across=True))
