"""People who sign in here: for administrators of the whole, who can't give more than they have."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from litestar import Request
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.errors import ForbiddenError, InvalidError
from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit import NO_TENANT
from holdfast.kit.access import SignInLinks, User, UserRole, Users
from holdfast.kit.access.authorization import has_role
from holdfast.kit.access.sign_in_links import link_to
from holdfast.model.access import Caller
from holdfast.operations.act import run_audited
from holdfast.routing import Actor, Cursor, Limit, action_route, read_route
from holdfast.runtime import Runtime


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


class NewUser(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Without a password: who is added comes in by a link and sets one."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    role: UserRole
    tenant_id: Annotated[str, Meta(min_length=1, max_length=200)] = NO_TENANT


class OneTimeLink(msgspec.Struct, frozen=True):
    url: str


def row(user: User) -> UserRow:
    return UserRow(
        name=user.id, role=user.role, tenant_id=user.tenant_id, created_at=user.created_at,
        created_by=user.created_by, last_seen_at=user.last_seen_at, disabled_at=user.disabled_at,
    )  # fmt: skip


def _check_reach(request: Request[Any, Any, Any], role: str) -> None:
    caller: Caller = request.scope["state"]["caller"]
    if not has_role(caller, role, NO_TENANT):
        raise ForbiddenError(f"only somebody who is {role} may do this to a person who is", needs=(role,))


async def _reached(request: Request[Any, Any, Any], runtime: Runtime, name: str) -> User:
    user = await Users(runtime.store).get(name)
    _check_reach(request, user.role)
    return user


@read_route("/users", "admin", area="users", platform=True)
async def users(runtime: RuntimeDependency, limit: Limit = 50, cursor: Cursor = None) -> UserPage:
    """People, newest first."""
    found, after = await Users(runtime.store).page(limit=limit, cursor=cursor)
    return UserPage([row(one) for one in found], after)


@action_route("/users", "admin", area="users", action="create", platform=True)
async def add(
    request: Request[Any, Any, Any], runtime: RuntimeDependency, actor: Actor, data: JSONBody[NewUser]
) -> UserRow:
    """Add somebody; a link lets them in."""
    _check_reach(request, data.role)
    runtime.store.tenant(data.tenant_id)  # refuses an id that none can have
    people = Users(runtime.store)
    user = await people.build(
        data.name, role=data.role, tenant_id=data.tenant_id, password=None, created_by=actor
    )
    await run_audited(
        runtime, NO_TENANT, lambda tx: people.insert(user, tx), actor=actor, action="user.added",
        subject=user.id, details={"role": user.role, "tenant": user.tenant_id}, across=True,
    )  # fmt: skip
    return row(user)


@action_route("/users/{name:str}/link", "admin", area="users", action="update", platform=True)
async def link(
    request: Request[Any, Any, Any], runtime: RuntimeDependency, actor: Actor, name: FromPath[str]
) -> OneTimeLink:
    """A link with which they set a new password, once, within an hour."""
    user = await _reached(request, runtime, name)
    links = SignInLinks(runtime.store)
    code = await run_audited(
        runtime, NO_TENANT, lambda tx: links.create(user.id, tx, created_by=actor), actor=actor,
        action="user.link_made", subject=user.id, across=True,
    )  # fmt: skip
    address = runtime.config.public_url or str(request.base_url)
    return OneTimeLink(link_to("link", code, address))


@action_route("/users/{name:str}/disable", "admin", area="users", action="update", platform=True)
async def disable(
    request: Request[Any, Any, Any], runtime: RuntimeDependency, actor: Actor, name: FromPath[str]
) -> UserRow:
    """End their sessions at once and let them in no more."""
    user = await _reached(request, runtime, name)
    if actor == f"user:{user.id}":
        raise InvalidError("nobody disables themselves: another administrator can", "name")
    people = Users(runtime.store)
    return row(await run_audited(
        runtime, NO_TENANT, lambda tx: people.disable(user.id, tx), actor=actor, action="user.disabled",
        subject=user.id, across=True,
    ))  # fmt: skip


@action_route("/users/{name:str}/enable", "admin", area="users", action="update", platform=True)
async def enable(
    request: Request[Any, Any, Any], runtime: RuntimeDependency, actor: Actor, name: FromPath[str]
) -> UserRow:
    """Let them in again."""
    user = await _reached(request, runtime, name)
    people = Users(runtime.store)
    return row(await run_audited(
        runtime, NO_TENANT, lambda tx: people.enable(user.id, tx), actor=actor, action="user.enabled",
        subject=user.id, across=True,
    ))  # fmt: skip


ROUTES: Final = (users, add, link, disable, enable)
