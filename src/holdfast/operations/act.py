"""What people do is on record."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from holdfast.kit.audit import Audit, AuditEntry
from holdfast.kit.audit.trail import ATTEMPTS
from holdfast.runtime import Runtime
from holdfast.store import Transaction

T = TypeVar("T")


async def append_audit(
    runtime: Runtime, tenant_id: str, *, actor: str, action: str, subject: str, details: Any = None
) -> None:
    """Put an operator's act on the tenant's audit trail."""
    entry = AuditEntry(action=action, actor=actor, subject=subject, details=details)
    await Audit(runtime.store, tenant_id).append(entry)


async def run_audited(
    runtime: Runtime,
    tenant_id: str,
    act: Callable[[Transaction], Awaitable[T]],
    *,
    actor: str,
    action: str,
    subject: str,
    details: Any = None,
    across: bool = False,
) -> T:
    """Do it and put it on the tenant's audit trail, in one commit: both or neither.

    An act that gives False found nothing to do, and nothing goes on record. With `across`, the act reaches
    documents of every tenant.
    """
    audit = Audit(runtime.store, tenant_id)
    entry = AuditEntry(action=action, actor=actor, subject=subject, details=details)

    async def both(tx: Transaction) -> T:
        answer = await act(tx)
        if answer is not False:
            await audit.add(tx, entry)
        return answer

    if across:
        return await runtime.store.privileged().transact(both, attempts=ATTEMPTS)
    return await audit.transact(both)
