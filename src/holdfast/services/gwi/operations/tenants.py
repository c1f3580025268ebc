"""Tenants: created by people or by an installation, configured, paused, suspended, deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from holdfast.errors import AlreadyExistsError, InvalidError, NotFoundError
from holdfast.kit.access import Roles
from holdfast.operation import Operator
from holdfast.services.gwi.domain.plans import PLANS, PlanName
from holdfast.services.gwi.models.tenants import (
    ConnectorConfig,
    Installation,
    Invite,
    Member,
    Repo,
    RiskMode,
    Tenant,
    TenantSettings,
    tenant_id_of,
)
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.operations.profiles import profile_write
from holdfast.store import Query, QueryPage, Store, Transaction, create, delete, patch

TENANTS_MAX: Final = 100
# More than any plan allows, so that one page has all.
PAGE_MAX: Final = 500


class NewTenant(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An organisation at GitHub, by its number and its login."""

    github_org_id: Annotated[int, Meta(ge=1, le=10**15)]
    github_org_login: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,38}$")]
    display_name: Annotated[str, Meta(max_length=100)] = ""


class SettingsChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The settings to change; what is not named stays."""

    default_risk_mode: RiskMode | None = None
    default_triage_model: Annotated[str, Meta(max_length=100)] | None = None
    default_code_model: Annotated[str, Meta(max_length=100)] | None = None
    complexity_threshold: Annotated[int, Meta(ge=1, le=5)] | None = None
    auto_run_on_conflict: bool | None = None
    auto_run_on_pr_open: bool | None = None


def new_tenant(asked: NewTenant, *, now: datetime, created_by: str) -> Tenant:
    """A tenant of the free plan; the GitHub App is not installed yet."""
    return Tenant(
        id=tenant_id_of(asked.github_org_id), github_org_id=asked.github_org_id,
        github_org_login=asked.github_org_login, display_name=asked.display_name or asked.github_org_login,
        installed_at=now, plan_limits=PLANS["free"], settings=TenantSettings(), created_at=now,
        updated_at=now, created_by=created_by,
    )  # fmt: skip


def new_owner(tenant_id: str, user_id: str, *, now: datetime) -> Member:
    """The first member of a tenant."""
    return Member(
        user_id=user_id, tenant_id=tenant_id, role="owner", accepted_at=now, created_at=now, updated_at=now
    )


async def require_tenant(tx: Transaction, tenant_id: str) -> Tenant:
    """The tenant, read in the transaction; NotFoundError where there is none."""
    stored = await tx.get(Tenant, tenant_id)
    if stored is None:
        raise NotFoundError(f"no tenant {tenant_id!r}")
    return stored.doc


def receipt_fields(by: Operator, intent: str, summary: str) -> dict[str, str]:
    """The fields of an audit event that say why something is changed; the event says who and when."""
    return {
        "intent": intent,
        "change_summary": summary,
        "scope": by.tenant_id,
        "policy_approval": "none needed",
    }


class TenantOperations:
    """Acts on a tenant itself.

    Example: `await gwi.tenants.pause(by, reason="release week")`
    """

    def __init__(self, store: Store, roles: Roles | None) -> None:
        self._store, self._clock, self._roles = store, store.clock, roles

    async def get(self, tenant_id: str) -> Tenant:
        """A tenant; NotFoundError where there is none."""
        stored = await self._store.tenant(tenant_id).get(Tenant, tenant_id)
        if stored is None:
            raise NotFoundError(f"no tenant {tenant_id!r}")
        return stored.doc

    async def of_person(self, user_id: str) -> list[tuple[Tenant, Member]]:
        """The tenants that a person is an active member of, with their membership."""
        everywhere = self._store.privileged()
        query = Query(Member).where("user_id", "==", user_id).where("status", "==", "active")
        members = (await everywhere.query(query.limit(TENANTS_MAX))).docs
        tenants = await everywhere.get_many(Tenant, [one.tenant_id for one in members])
        return [(found.doc, one) for found, one in zip(tenants, members, strict=True) if found is not None]

    async def page(self, *, limit: int = 100, cursor: str | None = None) -> QueryPage[Tenant]:
        """All tenants, the newest first: for operators of the platform."""
        query = Query(Tenant).order_by("-created_at").limit(limit).after(cursor)
        return await self._store.privileged().query(query)

    @gwi_operation("tenant.created", verb="create", needs="person")
    async def create(self, by: Operator, asked: NewTenant) -> Tenant:
        """Create an organisation's tenant and make the caller its owner; again, it returns the same.

        ConflictError where others have it: its owner can invite.
        """
        tenant_id = tenant_id_of(asked.github_org_id)
        inside = await by.in_tenant(tenant_id)

        async def act(tx: Transaction) -> Tenant | Literal[False]:
            if (stored := await tx.get(Tenant, tenant_id)) is not None:
                owned = await tx.get(Member, f"{by.actor}_{tenant_id}")
                if owned is None or stored.doc.created_by != by.actor:
                    raise AlreadyExistsError(
                        f"{asked.github_org_login} has a tenant; ask its owner for an invitation"
                    )
                return False
            now = self._clock.now()
            tenant = new_tenant(asked, now=now, created_by=by.actor)
            tx.write(create(tenant), create(new_owner(tenant_id, by.actor, now=now)))
            tx.write(*await profile_write(tx, by.caller, now=now))
            return tenant

        made = await inside.commit(
            act, subject=tenant_id, details={"githubOrgLogin": asked.github_org_login},
            fields=receipt_fields(inside, "Create the tenant", asked.github_org_login),
        )  # fmt: skip
        return made or await self.get(tenant_id)

    @gwi_operation("tenant.settings_changed", verb="update", needs="admin")
    async def change_settings(self, by: Operator, change: SettingsChange) -> Tenant:
        """Change the settings that are named."""
        named = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not None}
        return await self._change(
            by, lambda tenant: {"settings": msgspec.structs.replace(tenant.settings, **named)},
            intent="Change the settings", details=named,
        )  # fmt: skip

    @gwi_operation("tenant.paused", verb="pause", needs="admin")
    async def pause(self, by: Operator, *, reason: str = "") -> Tenant:
        """Let no run start until the tenant is resumed; those that run end as usual."""
        change = {"paused_at": self._clock.now(), "paused_reason": reason}
        return await self._change(by, lambda _: change, intent=reason or "Pause", details={"reason": reason})

    @gwi_operation("tenant.resumed", verb="resume", needs="admin")
    async def resume(self, by: Operator) -> Tenant:
        """Let runs start again."""
        change = {"paused_at": None, "paused_reason": ""}
        return await self._change(by, lambda _: change, intent="Resume")

    @gwi_operation("tenant.suspended", verb="suspend", needs="owner")
    async def suspend(self, by: Operator, *, reason: str = "") -> Tenant:
        """Refuse runs until the tenant is activated again."""
        return await self._set_status(by, "suspended", reason)

    @gwi_operation("tenant.activated", verb="activate", needs="owner")
    async def activate(self, by: Operator, *, reason: str = "") -> Tenant:
        """End a suspension, or take a deactivated tenant into use again."""
        return await self._set_status(by, "active", reason)

    @gwi_operation("tenant.deactivated", verb="deactivate", needs="owner")
    async def deactivate(self, by: Operator, *, reason: str = "") -> Tenant:
        """Take the tenant out of use; members and documents stay."""
        return await self._set_status(by, "deactivated", reason)

    @gwi_operation("tenant.plan_changed", verb="plan", needs="owner")
    async def change_plan(self, by: Operator, plan: PlanName) -> Tenant:
        """Change the plan; its limits replace those of the tenant."""
        change = {"plan": plan, "plan_limits": PLANS[plan]}
        return await self._change(
            by, lambda _: change, intent=f"Change the plan to {plan}", details={"plan": plan}
        )

    @gwi_operation("tenant.deleted", verb="delete", needs="owner")
    async def delete(self, by: Operator, *, confirm: str) -> Tenant:
        """Remove members, invitations and connectors, disable the repositories; audit and usage stay.

        `confirm` is the organisation's login, so that nobody deletes another tenant than they mean.
        """
        people: list[str] = []

        async def act(tx: Transaction) -> Tenant:
            tenant, now = await require_tenant(tx, by.tenant_id), self._clock.now()
            if confirm != tenant.github_org_login:
                raise InvalidError(f"type {tenant.github_org_login!r} to delete this tenant", "confirm")
            people[:] = await self._clear(tx, tenant, now=now)
            change = {"status": "deactivated", "deleted_at": now, "updated_at": now, "installation_id": 0}
            tx.write(patch(Tenant, tenant.id, changes=change))
            return _changed(tenant, change)

        fields = receipt_fields(by, "Delete the tenant", "members, invitations, connectors and installation")
        deleted = await by.commit(act, subject=by.tenant_id, fields=fields)
        for user_id in people:
            self._forget(user_id)
        return deleted

    async def _clear(self, tx: Transaction, tenant: Tenant, *, now: datetime) -> list[str]:
        """Write what deletion removes; return the members, who are no longer any."""
        members = await self._all(Query(Member).order_by("created_at"), tenant.id)
        pending = await self._all(
            Query(Invite).where("status", "==", "pending").order_by("expires_at"), tenant.id
        )
        connectors = await self._all(Query(ConnectorConfig).under(tenant.id).order_by("id"), tenant.id)
        repos = await self._all(
            Query(Repo).under(tenant.id).where("enabled", "==", True).order_by("github_full_name"), tenant.id
        )
        cancelled, off = {"status": "cancelled"}, {"enabled": False, "updated_at": now}
        tx.write(
            *(delete(Member, one.id) for one in members),
            *(patch(Invite, one.id, changes=cancelled) for one in pending),
            *(delete(ConnectorConfig, tenant.id, one.id) for one in connectors),
            *(patch(Repo, tenant.id, one.id, changes=off) for one in repos),
        )
        if await tx.get(Installation, str(tenant.installation_id)) is not None:
            change = {"deleted_at": now, "updated_at": now}
            tx.write(patch(Installation, str(tenant.installation_id), changes=change))
        return [one.user_id for one in members]

    async def _all(self, query: Query[Any], tenant_id: str) -> list[Any]:
        page = await self._store.tenant(tenant_id).query(query.limit(PAGE_MAX))
        return list(page.docs)

    async def _set_status(
        self, by: Operator, status: Literal["active", "suspended", "deactivated"], reason: str
    ) -> Tenant:
        change = {"status": status, "status_reason": reason}
        return await self._change(
            by, lambda _: change, intent=reason or f"Set the status to {status}", details={"reason": reason}
        )

    async def _change(
        self,
        by: Operator,
        change_of: Callable[[Tenant], dict[str, Any]],
        *,
        intent: str,
        details: dict[str, Any] | None = None,
    ) -> Tenant:
        async def act(tx: Transaction) -> Tenant:
            tenant = await require_tenant(tx, by.tenant_id)
            change = {**change_of(tenant), "updated_at": self._clock.now()}
            tx.write(patch(Tenant, tenant.id, changes=change))
            return _changed(tenant, change)

        summary = ", ".join(sorted(details or {})) or "status"
        fields = receipt_fields(by, intent, summary)
        return await by.commit(act, subject=by.tenant_id, details=details, fields=fields)

    def _forget(self, user_id: str) -> None:
        if self._roles is not None:
            self._roles.forget(user_id)


def _changed(tenant: Tenant, change: dict[str, Any]) -> Tenant:
    return msgspec.structs.replace(tenant, **change)
