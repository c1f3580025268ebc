"""Reads of a tenant's audit trail: list, export."""

from __future__ import annotations

from collections.abc import AsyncIterator

from holdfast.kit.audit import AuditFactory
from holdfast.services.gwi.models.records import AUDIT, AuditRecord
from holdfast.store import Query, QueryPage, Store


class AuditTrail:
    """The trail of one tenant.

    Example: `page = await operations.audit.page(tenant_id, action="run_started")`
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

    def export(self, tenant_id: str) -> AsyncIterator[bytes]:
        """The chain as JSON lines, oldest first."""
        return self._audits(tenant_id, models=AUDIT).export()
