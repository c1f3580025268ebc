"""Repositories: connected, configured, disconnected."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.errors import LimitReachedError, NotFoundError
from holdfast.operation import Operator
from holdfast.plural import plural
from holdfast.services.gwi.models.tenants import Repo, RepoSettings, RiskMode, Tenant, repo_id_of
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.operations.tenants import receipt_fields, require_tenant
from holdfast.store import Query, QueryPage, Snapshot, Store, Transaction, patch, put


class NewRepo(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A repository at GitHub, by its number and its name."""

    github_repo_id: Annotated[int, Meta(ge=1, le=10**15)]
    github_full_name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,100}/[A-Za-z0-9._-]{1,100}$")]
    display_name: Annotated[str, Meta(max_length=100)] = ""
    default_branch: Annotated[str, Meta(min_length=1, max_length=250)] = "main"


class RepoChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings of a repository to change; what is not named stays, `inherit` drops the override."""

    risk_mode_override: RiskMode | None = None
    inherit_risk_mode: bool = False
    auto_triage: bool | None = None
    auto_review: bool | None = None
    auto_resolve: bool | None = None
    branch_patterns: Annotated[list[str], Meta(max_length=50)] | None = None

    def apply(self, settings: RepoSettings) -> RepoSettings:
        named = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        if named.pop("inherit_risk_mode"):
            named["risk_mode_override"] = None
        return msgspec.structs.replace(settings, **named)


async def connect_repos(
    tx: Transaction, tenant: Tenant, asked: list[NewRepo], *, store: Store, now: datetime
) -> list[Repo]:
    """Write repositories as enabled ones; LimitReachedError past the plan's limit.

    The tenant's document is written too, and it was read in this transaction: of two who connect at once
    one is repeated, so the limit is exact.
    """
    before = {
        one.github_repo_id: await tx.get(Repo, tenant.id, repo_id_of(one.github_repo_id)) for one in asked
    }
    new = sum(found is None or not found.doc.enabled for found in before.values())
    query = Query(Repo).under(tenant.id).where("enabled", "==", True).order_by("github_full_name")
    enabled = await store.tenant(tenant.id).count(query)
    if new and enabled + new > tenant.plan_limits.repos_max:
        allowed = plural(tenant.plan_limits.repos_max, "repository", "repositories")
        raise LimitReachedError(
            f"the plan {tenant.plan} has {allowed}; disconnect one or change the plan",
            usage=enabled, limit=tenant.plan_limits.repos_max, plan=tenant.plan,
        )  # fmt: skip
    repos = [_connected(one, tenant.id, before[one.github_repo_id], now=now) for one in asked]
    tx.write(*map(put, repos), patch(Tenant, tenant.id, changes={"updated_at": now}))
    return repos


def _connected(asked: NewRepo, tenant_id: str, before: Snapshot[Repo] | None, *, now: datetime) -> Repo:
    named: dict[str, Any] = {
        "github_full_name": asked.github_full_name, "default_branch": asked.default_branch,
        "display_name": asked.display_name or asked.github_full_name.partition("/")[2],
        "enabled": True, "last_sync_at": now, "updated_at": now,
    }  # fmt: skip
    if before is not None:
        return msgspec.structs.replace(before.doc, **named)
    return Repo(
        id=repo_id_of(asked.github_repo_id), tenant_id=tenant_id, github_repo_id=asked.github_repo_id,
        settings=RepoSettings(), added_at=now, **named,
    )  # fmt: skip


class RepoOperations:
    """Acts on the repositories of a tenant.

    Example: `await gwi.repos.connect(by, [NewRepo(github_repo_id=7, github_full_name="acme/shop")])`
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store, store.clock

    async def page(
        self, tenant_id: str, *, enabled: bool | None = None, limit: int = 100, cursor: str | None = None
    ) -> QueryPage[Repo]:
        """The repositories by name."""
        query = Query(Repo).under(tenant_id).order_by("github_full_name").limit(limit).after(cursor)
        if enabled is not None:
            query = query.where("enabled", "==", enabled)
        return await self._store.tenant(tenant_id).query(query)

    async def get(self, tenant_id: str, repo_id: str) -> Repo:
        """A repository; NotFoundError where there is none."""
        stored = await self._store.tenant(tenant_id).get(Repo, tenant_id, repo_id)
        if stored is None:
            raise NotFoundError(f"this tenant has no repository {repo_id!r}")
        return stored.doc

    @gwi_operation("repo.connected", verb="connect", needs="admin")
    async def connect(self, by: Operator, asked: list[NewRepo]) -> list[Repo]:
        """Connect repositories, or enable and rename those that are known."""

        async def act(tx: Transaction) -> list[Repo]:
            tenant = await require_tenant(tx, by.tenant_id)
            return await connect_repos(tx, tenant, asked, store=self._store, now=self._clock.now())

        names = [one.github_full_name for one in asked]
        return await by.commit(
            act, subject=by.tenant_id, details={"repos": names},
            fields=receipt_fields(by, "Connect repositories", ", ".join(names)),
        )  # fmt: skip

    @gwi_operation("repo.configured", verb="update", needs="developer", subject="repo_id")
    async def configure(self, by: Operator, repo_id: str, change: RepoChange) -> Repo:
        """Change the settings that are named."""

        async def act(tx: Transaction) -> Repo:
            repo, now = await self._repo(tx, by.tenant_id, repo_id), self._clock.now()
            changed = msgspec.structs.replace(repo, settings=change.apply(repo.settings), updated_at=now)
            tx.write(put(changed))
            return changed

        fields = receipt_fields(by, f"Configure {repo_id}", "settings")
        return await by.commit(act, details=msgspec.to_builtins(change), fields=fields)

    @gwi_operation("repo.disconnected", verb="connect", needs="admin", subject="repo_id")
    async def disconnect(self, by: Operator, repo_id: str) -> Repo:
        """Disable a repository; its history stays."""

        async def act(tx: Transaction) -> Repo:
            tenant = await require_tenant(tx, by.tenant_id)
            repo, now = await self._repo(tx, by.tenant_id, repo_id), self._clock.now()
            change = {"enabled": False, "updated_at": now}
            tx.write(
                patch(Repo, tenant.id, repo_id, changes=change),
                patch(Tenant, tenant.id, changes={"updated_at": now}),
            )
            return msgspec.structs.replace(repo, **change)

        return await by.commit(act, fields=receipt_fields(by, f"Disconnect {repo_id}", "repository"))

    async def _repo(self, tx: Transaction, tenant_id: str, repo_id: str) -> Repo:
        stored = await tx.get(Repo, tenant_id, repo_id)
        if stored is None:
            raise NotFoundError(f"this tenant has no repository {repo_id!r}")
        return stored.doc
