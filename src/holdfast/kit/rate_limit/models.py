"""The document of a shared rate limit: one for each key in use."""

from __future__ import annotations

from datetime import datetime

from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, Retention, document


class RateLimitFields(Document, rename="camel"):
    """The fields of a rate limit; declare a subclass for another collection name."""

    id: str
    tenant_id: str = NO_TENANT
    next_at: datetime


@document(
    "holdfast_rate_limits/{id}",
    id=ProvidedId(),
    tenant="tenant_id",
    # Once its next turn lies in the past by more than any burst, a missing document says the same.
    retention=Retention("next_at", after_s=86_400),
    access=SERVICE_ONLY,
)
class RateLimitDocument(RateLimitFields, rename="camel"):
    """A rate limit of the kit's own collection."""
