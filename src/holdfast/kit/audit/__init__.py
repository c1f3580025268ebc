"""Audit trail: who did what, when and why; append-only and hash-chained."""

from holdfast.kit.audit.chain import ChainFault
from holdfast.kit.audit.models import (
    AUDIT_INDEXES,
    AUDIT_MODELS,
    AuditEntry,
    AuditEvent,
    AuditFields,
    AuditHead,
    AuditHeadFields,
    AuditModels,
    AuditOutcome,
)
from holdfast.kit.audit.trail import Audit, AuditFactory, ChainVerification

__all__ = [
    "AUDIT_INDEXES",
    "AUDIT_MODELS",
    "Audit",
    "AuditEntry",
    "AuditEvent",
    "AuditFactory",
    "AuditFields",
    "AuditHead",
    "AuditHeadFields",
    "AuditModels",
    "AuditOutcome",
    "ChainFault",
    "ChainVerification",
]
