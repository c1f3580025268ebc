"""The audit trail: reading it, and walking its chain."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.http.dependencies import RuntimeDependency
from holdfast.kit.audit import Audit, AuditEvent
from holdfast.kit.audit.chain import ChainFault
from holdfast.routing import Cursor, Limit, TenantId, action_route, read_route
from holdfast.store import Query


class AuditPage(msgspec.Struct, frozen=True):
    items: list[AuditEvent]
    cursor: str | None


class AuditVerdict(msgspec.Struct, frozen=True):
    """`fault` says what is wrong with the first event that does not hold."""

    sound: bool
    events: int
    fault: ChainFault | None


@read_route("/audit", "admin", area="audit")
async def audit(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> AuditPage:
    """Events, newest first."""
    query = Query(AuditEvent).order_by("-sequence").limit(limit).after(cursor)
    page = await runtime.store.tenant(tenant_id).query(query)
    return AuditPage(list(page.docs), page.cursor)


@action_route("/audit/verify", "admin", area="audit", action="verify", time_limit_s=300)
async def verify(runtime: RuntimeDependency, tenant_id: TenantId) -> AuditVerdict:
    """Walk the whole chain; finds any change, gap, insertion, reorder or cut-off tail."""
    found = await Audit(runtime.store, tenant_id).verify()
    return AuditVerdict(found.intact, found.events, found.fault)


ROUTES: Final = (audit, verify)
