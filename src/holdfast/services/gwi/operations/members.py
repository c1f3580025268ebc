"""Members: invited by e-mail, given roles, removed. The tenant's document orders changes of its seats."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from holdfast.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    LimitReachedError,
    NotFoundError,
)
from holdfast.kit.access import Roles
from holdfast.operation import Operator
from holdfast.services.gwi.domain.plans import seats_left
from holdfast.services.gwi.domain.roles import may_grant
from holdfast.services.gwi.models.tenants import INVITE_S, Invite, Member, MemberRole, Tenant
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.operations.profiles import profile_write
from holdfast.services.gwi.operations.tenants import PAGE_MAX, receipt_fields, require_tenant
from holdfast.store import Query, QueryPage, Store, Transaction, Write, create, delete, patch, put

EMAIL_PATTERN: Final = r"^[^@\s]{1,64}@[^@\s]{1,190}$"
TOKEN_BYTES: Final = 32
T = TypeVar("T")


class NewInvite(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Whom to invite, and as what."""

    email: Annotated[str, Meta(pattern=EMAIL_PATTERN)]
    role: MemberRole = "developer"


class SentInvite(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A new invitation; its `token` is told only here."""

    invite: Invite
    token: str


class MemberChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A member's new role or status; what is not named stays."""

    role: MemberRole | None = None
    status: Literal["active", "suspended"] | None = None


def invite_id_of(token: str) -> str:
    """The document of an invitation: the token itself is stored nowhere."""
    return hashlib.sha256(token.encode()).hexdigest()[:40]


class MemberOperations:
    """Acts on the people of a tenant.

    Example: `sent = await gwi.members.invite(by, NewInvite(email="ann@example.com", role="developer"))`
    """

    def __init__(self, store: Store, roles: Roles | None) -> None:
        self._store, self._clock, self._roles = store, store.clock, roles

    async def page(self, tenant_id: str, *, limit: int = 100, cursor: str | None = None) -> QueryPage[Member]:
        """The members, in the order in which they came."""
        query = Query(Member).order_by("created_at").limit(limit).after(cursor)
        return await self._store.tenant(tenant_id).query(query)

    async def invites(
        self, tenant_id: str, *, limit: int = 100, cursor: str | None = None
    ) -> QueryPage[Invite]:
        """The invitations, the newest first."""
        query = Query(Invite).order_by("-created_at").limit(limit).after(cursor)
        return await self._store.tenant(tenant_id).query(query)

    @gwi_operation("member.invited", verb="invite", needs="admin")
    async def invite(self, by: Operator, asked: NewInvite) -> SentInvite:
        """Invite an e-mail address for seven days; nobody gives a higher role than they have."""
        self._check_grant(by, asked.role)
        email, token = asked.email.lower(), secrets.token_urlsafe(TOKEN_BYTES)

        async def act(tx: Transaction) -> Invite:
            tenant, now = await require_tenant(tx, by.tenant_id), self._clock.now()
            await self._check_seats(tenant, now=now)
            await self._check_new(tenant.id, email, now=now)
            invite = Invite(
                id=invite_id_of(token), tenant_id=tenant.id, email=email, role=asked.role,
                invited_by=by.actor, created_at=now, expires_at=now + timedelta(seconds=INVITE_S),
            )  # fmt: skip
            tx.write(create(invite), _touched(tenant, now))
            return invite

        details = {"email": email, "role": asked.role}
        made = await self._commit(by, act, f"Invite {email}", subject=invite_id_of(token), details=details)
        return SentInvite(invite=made, token=token)

    @gwi_operation("member.invite_cancelled", verb="invite", needs="admin", subject="invite_id")
    async def cancel_invite(self, by: Operator, invite_id: str) -> Invite:
        """Cancel a pending invitation of this tenant."""

        async def act(tx: Transaction) -> Invite:
            tenant, now = await require_tenant(tx, by.tenant_id), self._clock.now()
            stored = await tx.get(Invite, invite_id)
            if stored is None:
                raise NotFoundError("this tenant has no such invitation")
            if stored.doc.status != "pending":
                raise ConflictError(f"the invitation is {stored.doc.status} already")
            tx.write(patch(Invite, invite_id, changes={"status": "cancelled"}), _touched(tenant, now))
            return msgspec.structs.replace(stored.doc, status="cancelled")

        return await self._commit(by, act, "Cancel the invitation", subject=invite_id)

    @gwi_operation("member.joined", verb="accept", needs="person")
    async def accept(self, by: Operator, token: str) -> Member:
        """Become a member by an invitation to the caller's verified address; again, it returns the same."""
        invite_id = invite_id_of(token)
        found = await self._store.privileged().get(Invite, invite_id)
        # The same refusal for tokens that never were: nobody learns which exist.
        if found is None or not by.caller.email or by.caller.email.lower() != found.doc.email:
            raise ForbiddenError("the invitation is for another address, or there is none; ask for a new one")
        inside = await by.in_tenant(found.doc.tenant_id)

        async def act(tx: Transaction) -> Member | Literal[False]:
            return await self._accept(tx, inside, invite_id)

        details = {"role": found.doc.role, "inviteId": invite_id}
        joined = await self._commit(inside, act, "Accept the invitation", subject=by.actor, details=details)
        self._forget(by.actor)
        if joined is False:
            stored = await self._store.tenant(inside.tenant_id).get(Member, f"{by.actor}_{inside.tenant_id}")
            if stored is None:
                raise ConflictError("the invitation was used, and the membership ended; ask for a new one")
            return stored.doc
        return joined

    async def _accept(self, tx: Transaction, by: Operator, invite_id: str) -> Member | Literal[False]:
        tenant, now = await require_tenant(tx, by.tenant_id), self._clock.now()
        stored = await tx.get(Invite, invite_id)
        assert stored is not None
        invite = stored.doc
        if invite.status == "accepted" and invite.accepted_by == by.actor:
            return False
        if invite.status != "pending" or invite.expires_at <= now:
            state = "expired" if invite.status == "pending" else invite.status
            raise ConflictError(f"the invitation is {state}; ask for a new one")
        before = await tx.get(Member, f"{by.actor}_{tenant.id}")
        if before is not None and before.doc.status == "active":
            raise AlreadyExistsError("you are a member of this tenant already")
        member = Member(
            user_id=by.actor, tenant_id=tenant.id, role=invite.role, invited_by=invite.invited_by,
            invited_at=invite.created_at, accepted_at=now, updated_at=now,
            created_at=now if before is None else before.doc.created_at,
        )  # fmt: skip
        used = {"status": "accepted", "accepted_by": by.actor, "accepted_at": now}
        tx.write(put(member), patch(Invite, invite_id, changes=used), _touched(tenant, now))
        tx.write(*await profile_write(tx, by.caller, now=now))
        return member

    @gwi_operation("member.changed", verb="role", needs="owner", subject="user_id")
    async def change(self, by: Operator, user_id: str, change: MemberChange) -> Member:
        """Change a member's role, suspend or restore them; a tenant keeps an active owner."""
        named = {name: value for name, value in msgspec.structs.asdict(change).items() if value is not None}
        if not named:
            raise InvalidError("name a role or a status")

        async def act(tx: Transaction) -> Member:
            tenant, member, now = *await self._member(tx, by.tenant_id, user_id), self._clock.now()
            if change.status == "active" and member.status != "active":
                await self._check_seats(tenant, now=now)
            changed = msgspec.structs.replace(member, updated_at=now, **named)
            await self._check_owner_stays(tenant.id, member, after=changed)
            tx.write(put(changed), _touched(tenant, now))
            return changed

        done = await self._commit(by, act, f"Change the member {user_id}", subject=user_id, details=named)
        self._forget(user_id)
        return done

    @gwi_operation("member.removed", verb="remove", needs="admin", subject="user_id")
    async def remove(self, by: Operator, user_id: str) -> Member:
        """Remove a member whose role is not above the caller's; a tenant keeps an active owner."""

        async def act(tx: Transaction) -> Member:
            tenant, member = await self._member(tx, by.tenant_id, user_id)
            self._check_grant(by, member.role)
            await self._check_owner_stays(tenant.id, member, after=None)
            tx.write(delete(Member, member.id), _touched(tenant, self._clock.now()))
            return member

        done = await self._commit(by, act, f"Remove the member {user_id}", subject=user_id)
        self._forget(user_id)
        return done

    async def _member(self, tx: Transaction, tenant_id: str, user_id: str) -> tuple[Tenant, Member]:
        tenant = await require_tenant(tx, tenant_id)
        stored = await tx.get(Member, f"{user_id}_{tenant_id}")
        if stored is None:
            raise NotFoundError(f"this tenant has no member {user_id!r}")
        return tenant, stored.doc

    async def _check_seats(self, tenant: Tenant, *, now: datetime) -> None:
        """Raise LimitReachedError where the plan has no seat left.

        Every change of a seat writes the tenant's document, so what is counted here is still so at commit.
        """
        inside = self._store.tenant(tenant.id)
        members = await inside.count(Query(Member).where("status", "==", "active"))
        waiting = Query(Invite).where("status", "==", "pending").where("expires_at", ">", now)
        pending = await inside.count(waiting.order_by("expires_at"))
        if not seats_left(tenant.plan_limits, members=members, pending=pending):
            limit = tenant.plan_limits.members_max
            raise LimitReachedError(
                f"all {limit} seats are taken, invitations included; remove somebody or change the plan",
                usage=members + pending, limit=limit, plan=tenant.plan,
            )  # fmt: skip

    async def _check_new(self, tenant_id: str, email: str, *, now: datetime) -> None:
        query = Query(Invite).where("email", "==", email).where("status", "==", "pending").limit(PAGE_MAX)
        page = await self._store.tenant(tenant_id).query(query)
        if any(one.expires_at > now for one in page.docs):
            raise AlreadyExistsError(f"{email} is invited already; cancel that invitation to send another")

    async def _check_owner_stays(self, tenant_id: str, member: Member, *, after: Member | None) -> None:
        if member.role != "owner" or member.status != "active":
            return
        if after is not None and after.role == "owner" and after.status == "active":
            return
        query = Query(Member).where("role", "==", "owner").where("status", "==", "active")
        if await self._store.tenant(tenant_id).count(query) < 2:
            raise ConflictError("this is the last owner; make somebody else an owner first")

    def _check_grant(self, by: Operator, role: MemberRole) -> None:
        own = "owner" if by.caller.service else by.caller.role_in(by.tenant_id)
        if not may_grant(own, role):
            raise ForbiddenError(f"only an {role} may do this to an {role}", needs=(role,), has=own or "")

    async def _commit(
        self,
        by: Operator,
        act: Callable[[Transaction], Awaitable[T]],
        intent: str,
        *,
        subject: str,
        details: dict[str, Any] | None = None,
    ) -> T:
        fields = receipt_fields(by, intent, ", ".join(sorted(details or {})))
        return await by.commit(act, subject=subject, details=details, fields=fields)

    def _forget(self, user_id: str) -> None:
        if self._roles is not None:
            self._roles.forget(user_id)


def _touched(tenant: Tenant, now: datetime) -> Write:
    return patch(Tenant, tenant.id, changes={"updated_at": now})
