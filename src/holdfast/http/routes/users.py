"""Routes for people who sign in here: for administrators of the platform."""

from __future__ import annotations

from typing import Annotated, Any, Final

from litestar import Request
from litestar.params import JSONBody, PathParameter, QueryParameter
from msgspec import Meta

from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit import NO_TENANT
from holdfast.kit.access import UserRole
from holdfast.operations import users
from holdfast.operations.users import AddedUser, OneTimeLink, UserName, UserPage, UserRow
from holdfast.routing import By, Cursor, Limit, RequestBody, action_route, read_route
from holdfast.runtime import Runtime

_USER: Final = "/users/{name:str}"
_NamePart = Annotated[str, QueryParameter(description="Any part of their name.", max_length=100)]
_Name = Annotated[str, PathParameter(description="The person's name.")]


class NewUser(RequestBody, frozen=True):
    """Without a password: a new person comes in by a link and sets one."""

    name: UserName
    role: UserRole
    tenant_id: Annotated[str, Meta(min_length=1, max_length=200)] = NO_TENANT


class SetPassword(RequestBody, frozen=True):
    password: str


def _address(runtime: Runtime, request: Request[Any, Any, Any]) -> str:
    return runtime.config.public_url or str(request.base_url)


@read_route("/users", "admin", area="users", platform=True)
async def list_users(
    runtime: RuntimeDependency, name: _NamePart = "", limit: Limit = 50, cursor: Cursor = None
) -> UserPage:
    """People, newest first; a search looks at 5,000 of them, and the cursor continues it."""
    return await users.list_users(runtime, name=name, limit=limit, cursor=cursor)


@action_route("/users", users.add)
async def add(
    request: Request[Any, Any, Any], runtime: RuntimeDependency, by: By, data: JSONBody[NewUser]
) -> AddedUser:
    """Add a person; the link lets them in."""
    return await users.add(
        runtime, by, data.name, role=data.role, tenant_id=data.tenant_id, address=_address(runtime, request)
    )


@action_route(f"{_USER}/link", users.make_link)
async def make_link(
    request: Request[Any, Any, Any], runtime: RuntimeDependency, by: By, name: _Name
) -> OneTimeLink:
    """A link with which they set a new password, once, within an hour."""
    return await users.make_link(runtime, by, name, address=_address(runtime, request))


@action_route(f"{_USER}/disable", users.disable)
async def disable(runtime: RuntimeDependency, by: By, name: _Name) -> UserRow:
    """End their sessions at once and let them in no more."""
    return await users.disable(runtime, by, name)


@action_route(f"{_USER}/enable", users.enable)
async def enable(runtime: RuntimeDependency, by: By, name: _Name) -> UserRow:
    """Let them in again."""
    return await users.enable(runtime, by, name)


@action_route(f"{_USER}/sign-out", users.sign_out)
async def sign_out(runtime: RuntimeDependency, by: By, name: _Name) -> UserRow:
    """End every session of theirs, on every device; they may sign in again."""
    return await users.sign_out(runtime, by, name)


@action_route(f"{_USER}/password", users.set_password)
async def set_password(
    runtime: RuntimeDependency, by: By, name: _Name, data: JSONBody[SetPassword]
) -> UserRow:
    """Set their password and end their sessions."""
    return await users.set_password(runtime, by, name, password=data.password)


ROUTES: Final = (list_users, add, make_link, disable, enable, sign_out, set_password)
