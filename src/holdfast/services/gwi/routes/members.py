"""Members and invitations over HTTP."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from litestar.params import FromPath, JSONBody, PathParameter

from holdfast.routing import By, Cursor, Limit, TenantId
from holdfast.services.gwi.models.tenants import Invite, Member
from holdfast.services.gwi.operations.members import MemberChange, MemberOperations, NewInvite, SentInvite
from holdfast.services.gwi.routes.dependencies import (
    REPEATABLE,
    TENANT,
    TENANT_PATH,
    Operations,
    action_route,
    delete_route,
    put_route,
    read_route,
)

InviteToken = Annotated[str, PathParameter(description="The token that the invitation's answer had.")]


class MembersResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of members."""

    members: list[Member]
    cursor: str | None


class InvitesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of invitations."""

    invites: list[Invite]
    cursor: str | None


@read_route(f"{TENANT_PATH}/members", "admin", tenant=TENANT)
async def members(
    operations: Operations, tenant_id: TenantId, limit: Limit = 100, cursor: Cursor = None
) -> MembersResponse:
    """The members, in the order in which they came."""
    page = await operations.members.page(tenant_id, limit=limit, cursor=cursor)
    return MembersResponse(members=list(page.docs), cursor=page.cursor)


@put_route(f"{TENANT_PATH}/members/{{user_id:str}}", MemberOperations.change, tenant=TENANT)
async def change_member(
    operations: Operations, by: By, user_id: FromPath[str], data: JSONBody[MemberChange]
) -> Member:
    """Change a member's role, suspend or restore them."""
    return await operations.members.change(by, user_id, data)


@delete_route(f"{TENANT_PATH}/members/{{user_id:str}}", MemberOperations.remove, tenant=TENANT)
async def remove_member(operations: Operations, by: By, user_id: FromPath[str]) -> Member:
    """Remove a member."""
    return await operations.members.remove(by, user_id)


@read_route(f"{TENANT_PATH}/invites", "admin", tenant=TENANT)
async def invites(
    operations: Operations, tenant_id: TenantId, limit: Limit = 100, cursor: Cursor = None
) -> InvitesResponse:
    """The invitations, the newest first."""
    page = await operations.members.invites(tenant_id, limit=limit, cursor=cursor)
    return InvitesResponse(invites=list(page.docs), cursor=page.cursor)


@action_route(f"{TENANT_PATH}/invites", MemberOperations.invite, tenant=TENANT, status=201)
async def invite(operations: Operations, by: By, data: JSONBody[NewInvite]) -> SentInvite:
    """Invite somebody; the answer has the token that accepts the invitation, and nothing else has it.

    Example: `POST /tenants/gh-org-12345678/invites {"email": "ann@example.com", "role": "developer"}`
    """
    return await operations.members.invite(by, data)


@delete_route(f"{TENANT_PATH}/invites/{{invite_id:str}}", MemberOperations.cancel_invite, tenant=TENANT)
async def cancel_invite(operations: Operations, by: By, invite_id: FromPath[str]) -> Invite:
    """Cancel a pending invitation."""
    return await operations.members.cancel_invite(by, invite_id)


@action_route("/invites/{token:str}/accept", MemberOperations.accept, idempotent=REPEATABLE)
async def accept(operations: Operations, by: By, token: InviteToken) -> Member:
    """Become a member; the caller's verified address must be the invited one."""
    return await operations.members.accept(by, token)


ROUTES: Final[tuple[Any, ...]] = (
    members, change_member, remove_member, invites, invite, cancel_invite, accept,
)  # fmt: skip
