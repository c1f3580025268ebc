"""What people do is on record."""

from __future__ import annotations

from typing import Any

from holdfast.kit.audit import Audit, Entry
from holdfast.runtime import Runtime


async def note(
    runtime: Runtime, tenant_id: str, *, actor: str, action: str, subject: str, details: Any = None
) -> None:
    """Put an operator's act on the tenant's audit trail."""
    entry = Entry(action=action, actor=actor, subject=subject, details=details)
    await Audit(runtime.store, tenant_id=tenant_id).append(entry)
