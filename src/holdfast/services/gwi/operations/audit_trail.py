"""Reads of a tenant's audit trail: list, verify, export."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.kit.audit import AuditFactory, ChainVerification
from holdfast.services.gwi.models.records import AUDIT, AuditRecord
from holdfast.store import Query, QueryPage, Store


class AuditTrail:
    """The trail of one tenant.

    Example: `(await operations.audit.verify(tenant_id)).intact`
    """

    def __init__(self, store: Store, audits: AuditFactory) -> None:
        self._store, self._audits = store, audits

    async def page(
        self, tenant_id: str, *, action: str = "", limit: int = 50, cursor: str | None = None
    ) -> QueryPage[AuditRecord]:
        """Events, newest first; with `action` those of one kind."""
        query = Query(AuditRecord).order_by("-sequence").limit(limit).after(cursor)
        if action:
            query = query.where("action", "==", action)
        return await self._store.tenant(tenant_id).query(query)

    async def verify(self, tenant_id: str) -> ChainVerification:
        """Walk the whole chain: how many events are valid, and the first fault if any."""
        return await self._audits(tenant_id, models=AUDIT).verify()

    def export(self, tenant_id: str) -> AsyncIterator[bytes]:
        """The chain as JSON lines, oldest first."""
        return self._audits(tenant_id, models=AUDIT).export()
