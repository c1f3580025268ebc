"""What the vault keeps of its own: how far a rotation has come."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, Index, document


@document(
    "holdfast_rotations/{id}",
    tenant="tenant_id",
    indexes=[Index("-started_at", across="tenants")],
    access=SERVICE_ONLY,
)
class Rotation(Document, rename="camel"):
    """One collection on its way to one key. It ends after a walk over everything that changed nothing."""

    id: str
    tenant_id: str = NO_TENANT
    collection: str
    fields: list[str]
    key_id: str
    state: Literal["running", "finished"] = "running"
    started_at: datetime
    updated_at: datetime
    cursor: str | None = None
    walk: int = 1
    seen_in_walk: int = 0
    resealed_in_walk: int = 0
    resealed: int = 0
    unreadable: list[str] = []
    unreadable_in_walk: int = 0
