"""Documents of an audit trail: the kit's own, or a service's."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import DeclarationError
from holdfast.kit.model_checks import check_model, check_separate
from holdfast.model import ADMINS_READ, CompositeId, Document, Index, document

AuditOutcome = Literal["done", "refused", "failed"]


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One audited act. The receipt fields give its intent, extent and grounds.

    `fields` are those that a service's own event class adds.

    Example: `AuditEntry(action="run.cancelled", actor="user-7", subject="run-1")`
    """

    action: str
    actor: str
    subject: str = ""
    outcome: AuditOutcome = "done"
    details: Any = None
    intent: str = ""
    change_summary: str = ""
    scope: str = ""
    policy_approval: str = ""
    evidence_text: str = ""
    fields: Mapping[str, Any] = {}


# What walking, verifying and filtering a chain needs; a service's own event class declares them too.
AUDIT_INDEXES: Final = (
    Index("sequence"),
    Index("action", "-sequence"),
    Index("actor", "-sequence"),
    Index("subject", "-sequence"),
    # Sequences are of one tenant: over all of them events are listed by their time.
    Index("-at", across="tenants"),
    Index("action", "-at", across="tenants"),
    Index("actor", "-at", across="tenants"),
    Index("subject", "-at", across="tenants"),
)


class AuditFields(Document, rename="camel"):
    """The fields of one link of a tenant's chain: its hash covers all of them and the link before.

    A service's own trail has a subclass, with its own collection, stored names, id and further fields.
    """

    id: str = ""
    tenant_id: str
    sequence: int
    place: str  # the sequence zero-padded, so that ids sort in chain order
    at: datetime
    action: str
    actor: str
    subject: str
    outcome: AuditOutcome
    details: Any
    intent: str
    change_summary: str
    scope: str
    policy_approval: str
    evidence_text: str
    previous: str
    hash: str = ""


@document(
    "holdfast_audit/{id}",
    id=CompositeId("tenant_id", "place"),
    tenant="tenant_id",
    indexes=AUDIT_INDEXES,
    append_only=True,
    access=ADMINS_READ,
)
class AuditEvent(AuditFields, rename="camel"):
    """One link of a chain of the kit's own trail."""


class AuditHeadFields(Document, rename="camel"):
    """The end of a tenant's chain: what the next link must follow, authenticated by a key (`mac`).

    `forged_sequence` is the first head that no key had authenticated when a link was appended to it.
    """

    tenant_id: str
    sequence: int = 0
    hash: str = ""
    forged_sequence: int = 0
    mac: str = ""


@document("holdfast_audit_heads/{tenant_id}", tenant="tenant_id", access=ADMINS_READ)
class AuditHead(AuditHeadFields, rename="camel"):
    """The end of a chain of the kit's own trail."""


class AuditModels(msgspec.Struct, frozen=True, kw_only=True):
    """The document classes of an audit trail; a service gives subclasses declared under its own names.

    Example: `AuditModels(event=ReviewEvent, head=ReviewHead)`
    """

    event: type[AuditFields] = AuditEvent
    head: type[AuditHeadFields] = AuditHead

    def __post_init__(self) -> None:
        check_separate("an audit trail", self.all, (AuditEvent, AuditHead))
        check_model(self.event, AuditFields, path=("id",), indexes=AUDIT_INDEXES, append_only=True)
        check_model(self.head, AuditHeadFields, path=("tenant_id",))
        own = [f for f in msgspec.structs.fields(self.event) if f.name not in AuditFields.__struct_fields__]
        for field in own:
            if field.required:
                # A refused or failed act is recorded without them.
                raise DeclarationError(f"{self.event.__name__}.{field.name} needs a default", field.name)

    @property
    def all(self) -> tuple[type[Document], ...]:
        return (self.event, self.head)


AUDIT_MODELS: Final = AuditModels()


class AuditCheckpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a tenant's trail as it was at a time."""

    trail: str
    tenant_id: str
    sequence: int
    hash: str
    at: datetime
