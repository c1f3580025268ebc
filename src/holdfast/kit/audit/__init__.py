"""Audit trail: who did what, when and why; append-only and hash-chained."""

from holdfast.kit.audit.chain import ChainFault
from holdfast.kit.audit.models import AuditEntry, AuditEvent, AuditHead, AuditOutcome
from holdfast.kit.audit.trail import Audit, ChainVerification

__all__ = [
    "Audit",
    "AuditEntry",
    "AuditEvent",
    "AuditHead",
    "AuditOutcome",
    "ChainFault",
    "ChainVerification",
]
