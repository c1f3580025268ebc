"""The policy of a tenant: validated, saved with the next version, asked."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from holdfast.errors import VersionConflictError
from holdfast.operation import Operator
from holdfast.services.gwi.domain.policy import NO_POLICY, policy_errors
from holdfast.services.gwi.models.tenants import Tenant, TenantPolicy
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.operations.tenants import receipt_fields, require_tenant
from holdfast.store import Store, Transaction, patch


class PolicyChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A policy to save; `version` is the one that it replaces, 0 for the first; without it any."""

    document: dict[str, Any]
    version: Annotated[int, Meta(ge=0)] | None = None


class PolicyOperations:
    """Acts on the policy of a tenant.

    Example: `await gwi.policies.save(by, PolicyChange(document={"rules": []}))`
    """

    def __init__(self, store: Store) -> None:
        self._store, self._clock = store, store.clock

    async def get(self, tenant_id: str) -> TenantPolicy:
        """The saved policy; where none was saved, the usual one as version 0."""
        stored = await self._store.tenant(tenant_id).get(Tenant, tenant_id)
        if stored is not None and stored.doc.policy is not None:
            return stored.doc.policy
        return TenantPolicy(
            document=msgspec.to_builtins(NO_POLICY), version=0, updated_at=self._clock.now(), updated_by="",
            valid=True,
        )  # fmt: skip

    @gwi_operation("policy.saved", verb="policy", needs="admin")
    async def save(self, by: Operator, change: PolicyChange) -> TenantPolicy:
        """Save a policy as the next version; one with errors is stored with them and does not apply."""
        errors = policy_errors(change.document)

        async def act(tx: Transaction) -> TenantPolicy:
            tenant, now = await require_tenant(tx, by.tenant_id), self._clock.now()
            current = 0 if tenant.policy is None else tenant.policy.version
            if change.version is not None and change.version != current:
                raise VersionConflictError(f"the policy is at version {current}; read it again")
            policy = TenantPolicy(
                document=change.document, version=current + 1, updated_at=now, updated_by=by.actor,
                valid=not errors, validation_errors=errors or None,
            )  # fmt: skip
            tx.write(patch(Tenant, tenant.id, changes={"policy": policy, "updated_at": now}))
            return policy

        fields = receipt_fields(by, "Change the policy", "policy")
        return await by.commit(
            act, subject=by.tenant_id, fields=fields,
            details=lambda policy: {"version": policy.version, "valid": policy.valid},
        )  # fmt: skip
