"""Audit trail: who did what, when and why; append-only, hash-chained and authenticated by a key."""

from holdfast.kit.audit.chain import ChainFault
from holdfast.kit.audit.checkpoints import CheckpointFile, CheckpointRecorder
from holdfast.kit.audit.models import (
    AUDIT_INDEXES,
    AUDIT_MODELS,
    AuditCheckpoint,
    AuditEntry,
    AuditEvent,
    AuditFields,
    AuditHead,
    AuditHeadFields,
    AuditModels,
    AuditOutcome,
)
from holdfast.kit.audit.signatures import count_heads, sign_heads
from holdfast.kit.audit.trail import AUDIT_KEY, Audit, AuditFactory, ChainVerification

__all__ = [
    "AUDIT_INDEXES",
    "AUDIT_KEY",
    "AUDIT_MODELS",
    "Audit",
    "AuditCheckpoint",
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
    "CheckpointFile",
    "CheckpointRecorder",
    "count_heads",
    "sign_heads",
]
