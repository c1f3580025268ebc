"""Idempotency: the first caller works, the others get the stored answer."""

from holdfast.kit.idempotency.decision import Proceed, Replay, Wait, decide
from holdfast.kit.idempotency.idempotency import Done, Idempotency, IdempotentResult, Ticket
from holdfast.kit.idempotency.models import (
    IdempotencyDocument,
    IdempotencyFields,
    StoredResponse,
    body_hash_of,
)

__all__ = [
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
