"""Idempotency: the first caller does the work, all others get the stored response."""

from holdfast.kit.idempotency.decision import Proceed, Replay, Wait, decide
from holdfast.kit.idempotency.idempotency import Done, Idempotency, IdempotentResult, Ticket
from holdfast.kit.idempotency.models import (
    IDEMPOTENCY_CLAIM,
    IdempotencyDocument,
    IdempotencyFields,
    StoredResponse,
    body_hash_of,
)

__all__ = [
    "IDEMPOTENCY_CLAIM",
    "Done",
    "Idempotency",
    "IdempotencyDocument",
    "IdempotencyFields",
    "IdempotentResult",
    "Proceed",
    "Replay",
    "StoredResponse",
    "Ticket",
    "Wait",
    "body_hash_of",
    "decide",
]
