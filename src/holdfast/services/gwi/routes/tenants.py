"""Tenants over HTTP, and what a person knows of themselves."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta

from holdfast.routing import By, RequestBody, TenantId
from holdfast.services.gwi.domain.plans import PlanName
from holdfast.services.gwi.models.tenants import MemberRole, Tenant, TenantSettings, UserProfile
from holdfast.services.gwi.operations.profiles import ProfileChange, ProfileOperations
from holdfast.services.gwi.operations.tenants import NewTenant, SettingsChange, TenantOperations
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


class ReasonRequest(RequestBody, frozen=True):
    """Why something is done, for the audit trail."""

    reason: Annotated[str, Meta(max_length=500)] = ""


class PlanRequest(RequestBody, frozen=True):
    plan: PlanName


class TenantMembership(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tenant that a person belongs to, and their role there."""

    tenant: Tenant
    role: MemberRole


class TenantsResponse(msgspec.Struct, frozen=True):
    """The tenants of a person."""

    tenants: list[TenantMembership]


class MeResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A person, and the tenants they belong to."""

    user: UserProfile
    tenants: list[TenantMembership]


@action_route("/tenants", TenantOperations.create, status=201, idempotent=REPEATABLE)
async def create(operations: Operations, by: By, data: JSONBody[NewTenant]) -> Tenant:
    """Create the tenant of a GitHub organisation and become its owner.

    Example: `POST /tenants {"githubOrgId": 12345678, "githubOrgLogin": "acme-corp"}`
    """
    return await operations.tenants.create(by, data)


@read_route("/tenants", "person")
async def tenants(operations: Operations, by: By) -> TenantsResponse:
    """The tenants that the caller belongs to."""
    return TenantsResponse(await _memberships(operations, by.caller.user_id or ""))


@read_route("/me", "person")
async def me(operations: Operations, by: By) -> MeResponse:
    """Who the caller is, and the tenants they belong to."""
    user = await operations.profiles.get(by.caller)
    return MeResponse(user=user, tenants=await _memberships(operations, user.id))


@put_route("/me", ProfileOperations.change)
async def change_me(operations: Operations, by: By, data: JSONBody[ProfileChange]) -> UserProfile:
    """Change the caller's own profile; what is not named stays."""
    return await operations.profiles.change(by, data)


async def _memberships(operations: Operations, user_id: str) -> list[TenantMembership]:
    found = await operations.tenants.of_person(user_id)
    return [TenantMembership(tenant=tenant, role=member.role) for tenant, member in found]


@read_route(TENANT_PATH, tenant=TENANT)
async def tenant(operations: Operations, tenant_id: TenantId) -> Tenant:
    """A tenant."""
    return await operations.tenants.get(tenant_id)


@read_route(f"{TENANT_PATH}/settings", tenant=TENANT)
async def settings(operations: Operations, tenant_id: TenantId) -> TenantSettings:
    """The settings of a tenant."""
    return (await operations.tenants.get(tenant_id)).settings


@put_route(f"{TENANT_PATH}/settings", TenantOperations.change_settings, tenant=TENANT)
async def change_settings(operations: Operations, by: By, data: JSONBody[SettingsChange]) -> Tenant:
    """Change the settings that are named; the others stay."""
    return await operations.tenants.change_settings(by, data)


@action_route(f"{TENANT_PATH}/pause", TenantOperations.pause, tenant=TENANT)
async def pause(operations: Operations, by: By, data: JSONBody[ReasonRequest]) -> Tenant:
    """Let no run start until the tenant is resumed."""
    return await operations.tenants.pause(by, reason=data.reason)


@action_route(f"{TENANT_PATH}/resume", TenantOperations.resume, tenant=TENANT)
async def resume(operations: Operations, by: By) -> Tenant:
    """Let runs start again."""
    return await operations.tenants.resume(by)


@action_route(f"{TENANT_PATH}/suspend", TenantOperations.suspend, tenant=TENANT)
async def suspend(operations: Operations, by: By, data: JSONBody[ReasonRequest]) -> Tenant:
    """Refuse runs until the tenant is activated again."""
    return await operations.tenants.suspend(by, reason=data.reason)


@action_route(f"{TENANT_PATH}/activate", TenantOperations.activate, tenant=TENANT)
async def activate(operations: Operations, by: By, data: JSONBody[ReasonRequest]) -> Tenant:
    """End a suspension, or take a deactivated tenant into use again."""
    return await operations.tenants.activate(by, reason=data.reason)


@action_route(f"{TENANT_PATH}/deactivate", TenantOperations.deactivate, tenant=TENANT)
async def deactivate(operations: Operations, by: By, data: JSONBody[ReasonRequest]) -> Tenant:
    """Take the tenant out of use; members and documents stay."""
    return await operations.tenants.deactivate(by, reason=data.reason)


@action_route(f"{TENANT_PATH}/plan", TenantOperations.change_plan, tenant=TENANT)
async def change_plan(operations: Operations, by: By, data: JSONBody[PlanRequest]) -> Tenant:
    """Change the plan, and with it the limits."""
    return await operations.tenants.change_plan(by, data.plan)


@delete_route(TENANT_PATH, TenantOperations.delete, tenant=TENANT)
async def delete(
    operations: Operations,
    by: By,
    confirm: Annotated[str, QueryParameter(max_length=40, description="The organisation's login.")] = "",
) -> Tenant:
    """Delete a tenant: its members, invitations and connectors; audit and usage stay."""
    return await operations.tenants.delete(by, confirm=confirm)


ROUTES: Final[tuple[Any, ...]] = (
    create, tenants, me, change_me, tenant, settings, change_settings, pause, resume, suspend, activate,
    deactivate, change_plan, delete,
)  # fmt: skip
