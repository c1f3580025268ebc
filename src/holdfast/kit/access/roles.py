"""Roles of users by tenant, from the collection that the model declares as its membership."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from holdfast.errors import DeclarationError, UnindexedQueryError
from holdfast.kit.access.authorization import is_person
from holdfast.model import Caller, Document, schema_of
from holdfast.model.access import NO_TENANT, ROLES
from holdfast.model.permission import membership_schemas
from holdfast.store import Query, Store

CACHE_MAX: Final = 10_000
TENANTS_MAX: Final = 100


def roles_of(store: Store, classes: Iterable[type[Document]]) -> Roles | None:
    """The roles that the membership collection of a service gives; None where no service declares one."""
    for schema in membership_schemas([schema_of(cls) for cls in classes]):
        if schema.membership and not schema.membership.platform:
            return Roles(store, schema.cls)
    return None


def with_role(caller: Caller, tenant_id: str, role: str | None) -> Caller:
    """The caller with this role in the tenant too; of two, the higher one counts."""
    known = [one for one in (role, caller.roles.get(tenant_id)) if one in ROLES]
    if not known:
        return caller
    roles = {**caller.roles, tenant_id: max(known, key=ROLES.index)}
    return msgspec.structs.replace(caller, roles=roles)


class Roles:
    """Looks up roles, and caches them for a few seconds.

    A role that was taken away stops counting after `remember_s` at the latest, here at once with
    `forget`.

    Example: `caller = await Roles(store, TenantMembership).caller("user-7", "acme")`
    """

    def __init__(self, store: Store, kind: type[Document], *, remember_s: float = 5.0) -> None:
        membership = schema_of(kind).membership
        if membership is None:
            raise DeclarationError(f"{kind.__name__} declares no membership=Membership(...)")
        self._store, self._clock, self._kind = store, store.clock, kind
        self._membership, self._identity = membership, schema_of(kind).declared.id
        self._remember_s = remember_s
        self._cache: dict[tuple[str, str], tuple[str, float]] = {}

    async def caller(self, user_id: str, *tenant_ids: str) -> Caller:
        """The user as a caller, with their roles in these tenants."""
        roles = {tenant_id: await self.role(user_id, tenant_id) for tenant_id in tenant_ids}
        return Caller(user_id=user_id, roles={tenant: role for tenant, role in roles.items() if role})

    async def role(self, user_id: str, tenant_id: str) -> str | None:
        """The user's active role in a tenant, or None."""
        now_s = self._clock.monotonic()
        role, until_s = self._cache.get((user_id, tenant_id), ("", -1.0))
        if now_s < until_s:
            return role
        found = await self._look_up(user_id, tenant_id)
        self._cache.pop((user_id, tenant_id), None)
        # Only what was found: whoever becomes a member is one at once.
        if found is not None:
            self._cache[user_id, tenant_id] = (found, now_s + self._remember_s)
        if len(self._cache) > CACHE_MAX:
            del self._cache[next(iter(self._cache))]
        return found

    async def tenants(self, user_id: str, *, limit: int = TENANTS_MAX) -> list[str]:
        """Tenants that the user is a member of, where the membership is indexed by its user and `when`."""
        query = Query(self._kind).where(self._membership.user, "==", user_id)
        for name, value in self._membership.when.items():
            query = query.where(name, "==", value)
        try:
            page = await self._store.privileged().query(query.limit(limit))
        except UnindexedQueryError:
            return []
        found = {self._value(doc, self._membership.tenant) for doc in page.docs}
        return sorted(found - {NO_TENANT})

    async def enter(self, caller: Caller, tenant_id: str) -> Caller:
        """The caller with their role in a tenant: what they have already, or the higher one of a membership.

        Roles on the platform itself are never a service's to give.
        """
        if tenant_id == NO_TENANT or not is_person(caller):
            return caller
        assert caller.user_id is not None
        return with_role(caller, tenant_id, await self.role(caller.user_id, tenant_id))

    def forget(self, user_id: str) -> None:
        """Drop a user's cached roles, after a change of their membership."""
        for key in [key for key in self._cache if key[0] == user_id]:
            del self._cache[key]

    async def _look_up(self, user_id: str, tenant_id: str) -> str | None:
        expected = {self._membership.user: user_id, self._membership.tenant: tenant_id}
        id = self._identity.make(expected.__getitem__) or user_id
        membership = await self._store.tenant(tenant_id).get(self._kind, id)
        # Composite ids can collide (`a_b` + `c`, `a` + `b_c`), so the fields decide.
        if membership is None or any(
            self._value(membership.doc, name) != value for name, value in expected.items()
        ):
            return None
        if any(self._value(membership.doc, name) != value for name, value in self._membership.when.items()):
            return None
        role = self._value(membership.doc, self._membership.role)
        return role if role in ROLES else None

    def _value(self, document: Document, field: str) -> Any:
        return msgspec.to_builtins(getattr(document, field))
