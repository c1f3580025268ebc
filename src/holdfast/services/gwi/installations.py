"""Installations of the GitHub App: what an event about one changes, in the commit that settles the event.

    created ──► tenant, installation, repositories, first owner
    suspend ◄──► unsuspend, repositories added and removed, renamed, archived
    deleted ──► repositories off, no installation

An installation's document remembers that it was deleted, and when GitHub last changed it, so that events
which come late or in another order change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.errors import NotFoundError
from holdfast.kit.audit import AuditEntry, AuditFactory
from holdfast.plural import plural
from holdfast.services.gwi.domain.github_events import (
    EventAccount,
    EventInstallation,
    EventRepository,
    GithubEvent,
    read_time,
)
from holdfast.services.gwi.models.records import AUDIT
from holdfast.services.gwi.models.tenants import (
    Installation,
    Invite,
    Member,
    Repo,
    RepoSettings,
    Tenant,
    repo_id_of,
    tenant_id_of,
)
from holdfast.services.gwi.operations.profiles import GITHUB_PREFIX
from holdfast.services.gwi.operations.tenants import NewTenant, new_owner, new_tenant
from holdfast.store import Query, Store, Transaction, patch, put

ACTIONS: Final = (
    "created", "deleted", "suspend", "unsuspend", "new_permissions_accepted", "added", "removed"
)  # fmt: skip
REPOSITORY_ACTIONS: Final = ("renamed", "transferred", "deleted", "archived", "unarchived", "edited")
SUSPENDED: Final = "the App's installation is suspended at GitHub"
REPOS_MAX: Final = 500
PEOPLE_MAX: Final = 200


def user_id_of(account: EventAccount | None) -> str:
    """The id of a person who is known by their GitHub account."""
    return f"{GITHUB_PREFIX}{account.id}" if account is not None and account.id else "system"


class InstallationEvents:
    """Applies events about installations and their repositories.

    Example: `ignored = await installations.apply(tx, event)`
    """

    def __init__(self, store: Store, audits: AuditFactory) -> None:
        self._store, self._audits, self._clock = store, audits, store.clock

    async def tenant_of(self, installation_id: str) -> str | None:
        """The tenant of an installation, for the inbox."""
        stored = await self._store.privileged().get(Installation, installation_id)
        return stored.doc.tenant_id if stored is not None else None

    async def apply(self, tx: Transaction, event: GithubEvent) -> str | None:
        """Write what an event about an installation changes; the reason where that is nothing."""
        about = event.installation
        if about is None or about.account is None or not about.account.id or event.action not in ACTIONS:
            return f"{event.name}: the action {event.action!r} changes nothing here"
        stored = await tx.get(Installation, str(about.id))
        known = None if stored is None else stored.doc
        changed_at = read_time(about.updated_at)
        if known is not None and known.deleted_at is not None and event.action != "deleted":
            return f"{event.name} {event.action}: the installation was deleted"
        if known is not None and _older(changed_at, known.changed_at) and event.action != "deleted":
            return f"{event.name} {event.action}: a newer event of this installation came first"
        installation = self._installation(about, about.account, known, event)
        tenant = await self._tenant(tx, about.account, event)
        change = getattr(self, f"_{event.action}")
        summary = await change(tx, tenant, installation, event)
        tx.write(put(tenant), put(installation))
        await self._record(tx, tenant, event, summary)
        return None

    def _installation(
        self, about: EventInstallation, account: EventAccount, known: Installation | None, event: GithubEvent
    ) -> Installation:
        now = self._clock.now()
        installation = known or Installation(
            installation_id=about.id, tenant_id=tenant_id_of(account.id), github_org_id=account.id,
            github_org_login=account.login, installed_at=now, installed_by=user_id_of(event.sender),
            created_at=now, updated_at=now,
        )  # fmt: skip
        return msgspec.structs.replace(
            installation, github_org_login=account.login, updated_at=now,
            permissions=about.permissions or installation.permissions,
            events=about.events or installation.events,
            changed_at=read_time(about.updated_at) or installation.changed_at,
        )  # fmt: skip

    async def _tenant(self, tx: Transaction, account: EventAccount, event: GithubEvent) -> Tenant:
        stored = await tx.get(Tenant, tenant_id_of(account.id))
        now = self._clock.now()
        if stored is not None:
            return msgspec.structs.replace(stored.doc, github_org_login=account.login, updated_at=now)
        asked = NewTenant(github_org_id=account.id, github_org_login=account.login)
        return new_tenant(asked, now=now, created_by=user_id_of(event.sender))

    # -- actions --------------------------------------------------------------------------------

    async def _created(
        self, tx: Transaction, tenant: Tenant, installation: Installation, event: GithubEvent
    ) -> str:
        if not tenant.installed_by:
            await self._end_unproven_claims(tx, tenant, installer=user_id_of(event.sender))
        tenant.installation_id, tenant.installed_at = installation.installation_id, self._clock.now()
        tenant.installed_by = user_id_of(event.sender)
        if tenant.status == "deactivated" or tenant.status_reason == SUSPENDED:
            tenant.status, tenant.status_reason = "active", ""
        await self._add_owner(tx, tenant, event)
        return await self._add_repos(tx, tenant, event.repositories)

    async def _new_permissions_accepted(
        self, tx: Transaction, tenant: Tenant, installation: Installation, event: GithubEvent
    ) -> str:
        return "new permissions"

    async def _deleted(
        self, tx: Transaction, tenant: Tenant, installation: Installation, event: GithubEvent
    ) -> str:
        installation.deleted_at = installation.deleted_at or self._clock.now()
        if tenant.installation_id not in (0, installation.installation_id):
            return "an earlier installation"
        tenant.installation_id = 0
        repos = await self._repos(tenant.id)
        await self._disable(tx, [repo.id for repo in repos], tenant.id)
        return f"{plural(len(repos), 'repository', 'repositories')} disabled"

    async def _suspend(
        self, tx: Transaction, tenant: Tenant, installation: Installation, event: GithubEvent
    ) -> str:
        installation.suspended_at = self._clock.now()
        if tenant.status == "active":
            tenant.status, tenant.status_reason = "suspended", SUSPENDED
        return "suspended"

    async def _unsuspend(
        self, tx: Transaction, tenant: Tenant, installation: Installation, event: GithubEvent
    ) -> str:
        installation.suspended_at = None
        if tenant.status == "suspended" and tenant.status_reason == SUSPENDED:
            tenant.status, tenant.status_reason = "active", ""
        return "unsuspended"

    async def _added(
        self, tx: Transaction, tenant: Tenant, installation: Installation, event: GithubEvent
    ) -> str:
        # It came before `created`, or that was lost: the installation is there all the same.
        tenant.installation_id = tenant.installation_id or installation.installation_id
        return await self._add_repos(tx, tenant, event.repositories_added)

    async def _removed(
        self, tx: Transaction, tenant: Tenant, installation: Installation, event: GithubEvent
    ) -> str:
        ids = [repo_id_of(one.id) for one in event.repositories_removed]
        await self._disable(tx, ids, tenant.id)
        return f"{plural(len(ids), 'repository', 'repositories')} disabled"

    # -- repositories and people ----------------------------------------------------------------

    async def apply_to_repo(self, tx: Transaction, tenant_id: str, event: GithubEvent) -> str | None:
        """Follow a repository that was renamed, moved or deleted; the reason where it is unknown."""
        about = event.repository
        stored = await tx.get(Repo, tenant_id, repo_id_of(about.id)) if about is not None else None
        if about is None or stored is None or event.action not in REPOSITORY_ACTIONS:
            return f"repository {event.action}: it changes nothing here"
        repo = stored.doc
        gone = event.action in ("deleted", "archived", "transferred")
        changed = msgspec.structs.replace(
            repo, github_full_name=about.full_name or repo.github_full_name, updated_at=self._clock.now(),
            default_branch=about.default_branch or repo.default_branch, enabled=repo.enabled and not gone,
        )  # fmt: skip
        tx.write(put(changed))
        tenant = await tx.get(Tenant, tenant_id)
        if tenant is None:
            raise NotFoundError(f"no tenant {tenant_id!r}")
        await self._record(tx, tenant.doc, event, changed.github_full_name)
        return None

    async def _add_repos(self, tx: Transaction, tenant: Tenant, found: Sequence[EventRepository]) -> str:
        """Enable repositories as far as the plan allows; the others are stored, for admins to choose."""
        before = {one.id: one for one in await self._repos(tenant.id)}
        room = tenant.plan_limits.repos_max - len(before)
        count = 0
        for about in found[:REPOS_MAX]:
            stored = await tx.get(Repo, tenant.id, repo_id_of(about.id))
            enabled = repo_id_of(about.id) in before or count < room
            count += repo_id_of(about.id) not in before and enabled
            tx.write(put(self._repo(about, tenant.id, stored.doc if stored else None, enabled=enabled)))
        return f"{plural(len(found), 'repository', 'repositories')}, {count} newly enabled"

    def _repo(self, about: EventRepository, tenant_id: str, known: Repo | None, *, enabled: bool) -> Repo:
        now = self._clock.now()
        repo = known or Repo(
            id=repo_id_of(about.id), tenant_id=tenant_id, github_repo_id=about.id,
            github_full_name=about.full_name, display_name=about.name or about.full_name,
            settings=RepoSettings(), added_at=now, updated_at=now,
        )  # fmt: skip
        return msgspec.structs.replace(
            repo, github_full_name=about.full_name, enabled=enabled, last_sync_at=now, updated_at=now
        )

    async def _repos(self, tenant_id: str) -> Sequence[Repo]:
        """The enabled repositories; changes of them write the tenant too, which orders them."""
        query = Query(Repo).under(tenant_id).where("enabled", "==", True).order_by("github_full_name")
        return (await self._store.tenant(tenant_id).query(query.limit(REPOS_MAX))).docs

    async def _disable(self, tx: Transaction, repo_ids: Sequence[str], tenant_id: str) -> None:
        for id in repo_ids:
            stored = await tx.get(Repo, tenant_id, id)
            if stored is not None:
                changed = msgspec.structs.replace(stored.doc, enabled=False, updated_at=self._clock.now())
                tx.write(put(changed))

    async def _add_owner(self, tx: Transaction, tenant: Tenant, event: GithubEvent) -> None:
        """Make who installed the App an owner: it counts when they sign in."""
        if event.sender is None or not event.sender.id or event.by_bot:
            return
        now, user_id = self._clock.now(), user_id_of(event.sender)
        stored = await tx.get(Member, f"{user_id}_{tenant.id}")
        member = new_owner(tenant.id, user_id, now=now) if stored is None else stored.doc
        tx.write(put(msgspec.structs.replace(member, role="owner", status="active", updated_at=now)))

    async def _end_unproven_claims(self, tx: Transaction, tenant: Tenant, *, installer: str) -> None:
        """Suspend GitHub users who took the tenant before its first installation, and end their invitations.

        The installation shows who acts for the organisation; its owner may let them in again. For people of
        another issuer, who have no GitHub account here, that issuer vouches. Changes of members write the
        tenant, too, so none comes in between.
        """
        store, now = self._store.tenant(tenant.id), self._clock.now()
        active = Query(Member).where("status", "==", "active").limit(PEOPLE_MAX)
        people = [one.user_id for one in (await store.query(active)).docs]
        claimed = [one for one in people if one.startswith(GITHUB_PREFIX) and one != installer]
        for user_id in claimed:
            stored = await tx.get(Member, f"{user_id}_{tenant.id}")
            if stored is not None:
                tx.write(put(msgspec.structs.replace(stored.doc, status="suspended", updated_at=now)))
        pending = Query(Invite).where("status", "==", "pending").where("expires_at", ">", now)
        for invite in (await store.query(pending.limit(PEOPLE_MAX))).docs:
            if invite.invited_by in claimed:
                tx.write(patch(Invite, invite.id, changes={"status": "cancelled"}))

    async def _record(self, tx: Transaction, tenant: Tenant, event: GithubEvent, summary: str) -> None:
        about: dict[str, Any] = {"action": event.action, "by": event.sender and event.sender.login}
        await self._audits(tenant.id, models=AUDIT).add(tx, AuditEntry(
            action=f"{event.name}.{event.action}", actor=user_id_of(event.sender),
            subject=str(event.installation.id) if event.installation else tenant.id, details=about,
            intent=f"{event.name} {event.action} at GitHub", change_summary=summary, scope=tenant.id,
            policy_approval="decided at GitHub",
        ))  # fmt: skip


def _older(at: datetime | None, than: datetime | None) -> bool:
    return at is not None and than is not None and at < than
