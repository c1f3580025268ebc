"""The audit trail: list, verify, export."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from holdfast.errors import InvalidError
from holdfast.kit.audit import AuditEvent
from holdfast.kit.audit.chain import ChainFault
from holdfast.runtime import Runtime
from holdfast.store import Query


class AuditPage(msgspec.Struct, frozen=True):
    items: list[AuditEvent]
    cursor: str | None


class AuditVerdict(msgspec.Struct, frozen=True):
    """`fault` says what is wrong with the first event that does not hold."""

    sound: bool
    events: int
    fault: ChainFault | None


async def list_events(
    runtime: Runtime,
    tenant_id: str,
    *,
    action: str | None = None,
    actor: str | None = None,
    subject: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> AuditPage:
    """Events, newest first; of one action, one actor or one subject where that is given."""
    given = {"action": action, "actor": actor, "subject": subject}
    filters = [(name, value) for name, value in given.items() if value]
    if len(filters) > 1:
        raise InvalidError("give one of action, actor and subject")
    query = Query(AuditEvent).order_by("-sequence").limit(limit).after(cursor)
    for name, value in filters:
        query = query.where(name, "==", value)
    page = await runtime.store.tenant(tenant_id).query(query)
    return AuditPage(list(page.docs), page.cursor)


async def verify(runtime: Runtime, tenant_id: str) -> AuditVerdict:
    """Walk the whole chain; finds any change, gap, insertion, reorder or cut-off tail."""
    verified = await runtime.audit(tenant_id).verify()
    return AuditVerdict(verified.intact, verified.events, verified.fault)


def export(runtime: Runtime, tenant_id: str) -> AsyncIterator[bytes]:
    """The chain as JSON lines, oldest first."""
    return runtime.audit(tenant_id).export()
