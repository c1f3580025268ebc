"""Documents of idempotency: the key, its lease and the stored response."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec

from holdfast.kit import NO_TENANT
from holdfast.model import HIDDEN, SERVICE_ONLY, Claim, Document, Retention, document


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The response that all callers get, as JSON values.

    `failed` responses expire sooner; then the key may be used for a new attempt.

    Example: `StoredResponse(status=201, body={"id": "run-1"})`
    """

    status: int = 200
    body: Any = None
    headers: dict[str, str] = {}
    failed: bool = False


class IdempotencyFields(Document, rename="camel"):
    """The fields of a record; declare a subclass for another collection name."""

    id: str
    key: str
    tenant_id: str = NO_TENANT
    status: Literal["processing", "completed", "failed"] = "processing"
    body_hash: str
    result: Annotated[StoredResponse | None, HIDDEN] = None
    created_at: datetime
    completed_at: datetime | None = None
    expires_at: datetime
    held_until: datetime | None
    held_by: str = ""
    fence: int


IDEMPOTENCY_CLAIM: Final = Claim(due="held_until", fence="fence", owner="held_by")


@document(
    "holdfast_idempotency/{id}",
    tenant="tenant_id",
    claim=IDEMPOTENCY_CLAIM,
    retention=Retention("expires_at"),
    access=SERVICE_ONLY,
)
class IdempotencyDocument(IdempotencyFields, rename="camel"):
    """A record of the kit's own collection."""


def record_id(tenant_id: str, key: str) -> str:
    """Ids are shared by all tenants and short; callers' keys are neither, so they are hashed."""
    return hashlib.sha256(f"{len(tenant_id)}:{tenant_id}:{key}".encode()).hexdigest()[:40]


def body_hash_of(body: Any) -> str:
    """A hash of the request: bytes and text as they are, values independent of the order of their keys."""
    if isinstance(body, str):
        body = body.encode()
    if not isinstance(body, (bytes, bytearray, memoryview)):
        body = b"json:" + msgspec.json.encode(body, order="deterministic")
    return hashlib.sha256(body).hexdigest()
