"""Documents of checkpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from holdfast.kit import NO_TENANT
from holdfast.model import SERVICE_ONLY, Document, Index, Retention, document


class CheckpointFields(Document, rename="camel"):
    """The fields of a checkpoint; declare a subclass for another collection name.

    `checkpoint_id` is made of run and number, so that two writers of the same number can't both succeed.
    `expires_at` is null as long as something may resume from here.
    """

    checkpoint_id: str
    run_id: str
    tenant_id: str = NO_TENANT
    step_id: str
    number: int
    state: dict[str, Any] = {}
    created_at: datetime
    is_latest: bool = True
    expires_at: datetime | None = None


CHECKPOINT_INDEXES: Final = (Index("run_id", "is_latest"), Index("run_id", "-number"))


@document(
    "holdfast_checkpoints/{checkpoint_id}",
    tenant="tenant_id",
    indexes=CHECKPOINT_INDEXES,
    immutable=["run_id", "step_id", "number", "state", "created_at"],
    retention=Retention("expires_at"),
    access=SERVICE_ONLY,
)
class CheckpointDocument(CheckpointFields, rename="camel"):
    """A checkpoint of the kit's own collection."""
