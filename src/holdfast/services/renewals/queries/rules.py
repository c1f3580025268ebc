"""The rules of one portfolio's properties."""

from __future__ import annotations

from holdfast.projection import project
from holdfast.services.renewals.domain.rules import RulesRequest
from holdfast.services.renewals.models import PropertyRules
from holdfast.store import Store


async def rules_of(store: Store, property_id: str) -> PropertyRules:
    """The property's own rules, or the defaults."""
    stored = await store.get(PropertyRules, property_id)
    return build_rules(store, property_id, RulesRequest()) if stored is None else stored.doc


def build_rules(store: Store, property_id: str, request: RulesRequest) -> PropertyRules:
    tenant_id, now = store.tenant_id or "-", store.clock.now()
    return project(request, PropertyRules, property_id=property_id, tenant_id=tenant_id, updated_at=now)
