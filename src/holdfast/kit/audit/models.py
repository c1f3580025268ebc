"""Documents of the audit trail."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from holdfast.model import ADMINS_READ, CompositeId, Document, Index, document

AuditOutcome = Literal["done", "refused", "failed"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One audited act. The receipt fields give its intent, extent and grounds.

    Example: `AuditEntry(action="run.cancelled", actor="user-7", subject="run-1")`
    """

    action: str
    actor: str
    subject: str = ""
    outcome: AuditOutcome = "done"
    details: Any = None
    intent: str = ""
    change_summary: str = ""
    scope: str = ""
    policy_approval: str = ""
    evidence_text: str = ""


@document(
    "holdfast_audit/{id}",
    id=CompositeId("tenant_id", "place"),
    tenant="tenant_id",
    indexes=[
        Index("sequence"),
        Index("action", "-sequence"),
        Index("actor", "-sequence"),
        Index("subject", "-sequence"),
    ],
    append_only=True,
    access=ADMINS_READ,
)
class AuditEvent(Document, rename="camel"):
    """One link of a tenant's chain: its hash covers all its fields and the link before."""

    id: str = ""
    tenant_id: str
    sequence: int
    place: str  # the sequence zero-padded, so that ids sort in chain order
    at: datetime
    action: str
    actor: str
    subject: str
    outcome: AuditOutcome
    details: Any
    intent: str
    change_summary: str
    scope: str
    policy_approval: str
    evidence_text: str
    previous: str
    hash: str = ""


@document("holdfast_audit_heads/{tenant_id}", tenant="tenant_id", access=ADMINS_READ)
class AuditHead(Document, rename="camel"):
    """The end of a tenant's chain: what the next link must follow."""

    tenant_id: str
    sequence: int = 0
    hash: str = ""
