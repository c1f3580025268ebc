"""Who has which role where, from the collection that the model declares as its membership."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast.errors import DeclarationError
from holdfast.model import Caller, Document, schema_of
from holdfast.model.access import ROLES
from holdfast.store import Store

REMEMBERED_MAX: Final = 10_000


class Roles:
    """Looks people's roles up, and remembers them for a few seconds.

    What is taken away stops counting at the latest after `remember_s`; `forget` makes it at once here.

    Example: `caller = await Roles(store, TenantMembership).caller("user-7", "acme")`
    """

    def __init__(self, store: Store, kind: type[Document], *, remember_s: float = 5.0) -> None:
        membership = schema_of(kind).membership
        if membership is None:
            raise DeclarationError(f"{kind.__name__} declares no membership=Membership(...)")
        self._store, self._clock, self._kind = store, store.clock, kind
        self._membership, self._identity = membership, schema_of(kind).declared.id
        self._remember_s = remember_s
        self._remembered: dict[tuple[str, str], tuple[str | None, float]] = {}

    async def caller(self, user_id: str, *tenant_ids: str) -> Caller:
        """The person with the roles they have in these tenants."""
        roles = {tenant_id: await self.role(user_id, tenant_id) for tenant_id in tenant_ids}
        return Caller(user_id=user_id, roles={tenant: role for tenant, role in roles.items() if role})

    async def role(self, user_id: str, tenant_id: str) -> str | None:
        """The person's role in a tenant; None for none that counts now."""
        now_s = self._clock.monotonic()
        role, until_s = self._remembered.get((user_id, tenant_id), (None, -1.0))
        if now_s < until_s:
            return role
        role = await self._look_up(user_id, tenant_id)
        self._remembered.pop((user_id, tenant_id), None)
        self._remembered[user_id, tenant_id] = (role, now_s + self._remember_s)
        if len(self._remembered) > REMEMBERED_MAX:
            del self._remembered[next(iter(self._remembered))]
        return role

    def forget(self, user_id: str) -> None:
        """Look this person up anew: after a change of their membership."""
        for key in [key for key in self._remembered if key[0] == user_id]:
            del self._remembered[key]

    async def _look_up(self, user_id: str, tenant_id: str) -> str | None:
        wanted = {self._membership.user: user_id, self._membership.tenant: tenant_id}
        id = self._identity.make(wanted.__getitem__) or user_id
        found = await self._store.tenant(tenant_id).get(self._kind, id)
        # Joined ids can be spelled alike (`a_b` + `c`, `a` + `b_c`), so the fields decide.
        if found is None or any(self._value(found.doc, name) != value for name, value in wanted.items()):
            return None
        if any(self._value(found.doc, name) != value for name, value in self._membership.when.items()):
            return None
        role = self._value(found.doc, self._membership.role)
        return role if role in ROLES else None

    def _value(self, document: Document, field: str) -> Any:
        return msgspec.to_builtins(getattr(document, field))
