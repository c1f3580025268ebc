"""Identities as callers: roles by the settings, and of the user whose name is their verified address."""

from __future__ import annotations

from holdfast.errors import ForbiddenError
from holdfast.kit.access.oidc import Identity, Oidc
from holdfast.kit.access.roles import with_role
from holdfast.kit.access.users import User, Users
from holdfast.model import Caller
from holdfast.store import Store


class Identities:
    """Makes callers of identities, for bearer tokens and for sessions alike.

    Example: `caller = await Identities(store, oidc).verify(token)`
    """

    def __init__(self, store: Store, oidc: Oidc) -> None:
        self.oidc, self._users = oidc, Users(store)

    async def verify(self, token: str) -> Caller:
        """The caller with this identity token; `UnverifiedError` for an invalid one."""
        identity = await self.oidc.verify(token)
        return await self.caller(identity, await self.user(identity))

    async def user(self, identity: Identity) -> User | None:
        """The user whose name is the identity's address, if its issuer speaks for users."""
        return await self._users.find(identity.email) if self.oidc.signs_in(identity) else None

    async def caller(self, identity: Identity, user: User | None) -> Caller:
        """The identity as a caller; `ForbiddenError` for a user who was disabled."""
        caller = self.oidc.caller(identity)
        if user is None:
            return caller
        if user.disabled_at is not None:
            raise ForbiddenError(f"{user.id} is disabled; an administrator can enable them")
        return with_role(caller, user.tenant_id, user.role)
