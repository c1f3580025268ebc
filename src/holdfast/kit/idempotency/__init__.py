"""Idempotency: the first caller works, the others get the stored answer."""

from holdfast.kit.idempotency.decision import Replay, Wait, Work, decide
from holdfast.kit.idempotency.idempotency import Done, Given, Idempotency, Ticket
from holdfast.kit.idempotency.models import Answer, IdempotencyDocument, IdempotencyFields, body_hash_of

__all__ = [
    "Answer",
    "Done",
    "Given",
    "Idempotency",
    "IdempotencyDocument",
    "IdempotencyFields",
    "Replay",
    "Ticket",
    "Wait",
    "Work",
    "body_hash_of",
    "decide",
]
