"""The hash chain, without a store: building and checking links."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.ids import zero_padded
from holdfast.kit.audit.models import AuditEntry, AuditFields, AuditHeadFields, AuditModels
from holdfast.model import CompositeId, schema_of

PLACE_WIDTH: Final = 12
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")

FaultKind = Literal[
    "missing", "changed", "inserted", "reordered", "cut off", "misfiled", "forged", "unsigned"
]


class ChainFault(msgspec.Struct, frozen=True):
    """The first fault of a chain, and where it is."""

    kind: FaultKind
    sequence: int
    event_id: str
    message: str


def seal(event: AuditFields) -> str:
    """The hash of a link: over all its fields and, through `previous`, over all links before it.

    An id that is made of other fields is covered by these.
    """
    id = "" if _is_composed(event) else event.id
    encoded = _ENCODER.encode(msgspec.structs.replace(event, hash="", id=id))
    return hashlib.sha256(encoded).hexdigest()


def authenticate(head: AuditHeadFields, key: bytes) -> str:
    """The MAC of a head: through its hash, over the whole chain.

    Hashes alone can be made again by whoever rewrites the chain; this needs the key.
    """
    collection = "/".join(schema_of(type(head)).path.names)
    parts = (collection, head.tenant_id, head.sequence, head.hash, head.forged_sequence)
    return hmac.digest(key, msgspec.msgpack.encode(parts), "sha256").hex()


def sign(head: AuditHeadFields, key: bytes) -> AuditHeadFields:
    return msgspec.structs.replace(head, mac=authenticate(head, key))


def is_authentic(head: AuditHeadFields, keys: Sequence[bytes]) -> bool:
    """Whether one of the keys made this head's MAC; an empty chain has none."""
    return head.sequence == 0 or any(hmac.compare_digest(authenticate(head, key), head.mac) for key in keys)


def is_unsigned(head: AuditHeadFields) -> bool:
    """Whether no key ever signed this chain: that of a release before MACs, or of a process without keys.

    Somebody who removes the MAC makes it look so; a checkpoint shows that there was one.
    """
    return head.sequence > 0 and not head.mac and not head.forged_sequence


def link(
    head: AuditHeadFields, entry: AuditEntry, *, models: AuditModels, at: datetime
) -> tuple[AuditFields, AuditHeadFields]:
    """The next link and the head after it."""
    sequence, fields = head.sequence + 1, msgspec.structs.asdict(entry)
    fields.update(fields.pop("fields"))
    event = models.event(
        tenant_id=head.tenant_id, sequence=sequence, place=zero_padded(sequence, PLACE_WIDTH), at=at,
        previous=head.hash, **fields,
    )  # fmt: skip
    if not _is_composed(event):
        schema_of(models.event).assign_id(event)
    event.hash = seal(event)
    return event, msgspec.structs.replace(head, sequence=sequence, hash=event.hash)


def check_link(before: AuditHeadFields, event: AuditFields, *, stored_id: str) -> ChainFault | None:
    """Check that an event is the next link after `before`; return the fault otherwise."""
    expected = before.sequence + 1

    def fault(kind: FaultKind, message: str) -> ChainFault:
        return ChainFault(kind, expected, stored_id, message)

    if seal(event) != event.hash:
        return fault("changed", f"event {event.sequence} was changed after it was written")
    if stored_id != _id_of(event) or event.place != zero_padded(event.sequence, PLACE_WIDTH):
        return fault("misfiled", f"event {event.sequence} is stored under another id")
    if event.sequence > expected:
        return fault("missing", f"event {expected} is missing; {event.sequence} follows {before.sequence}")
    if event.sequence < expected:
        return fault("reordered", f"event {event.sequence} comes after {before.sequence}")
    if event.previous != before.hash:
        return fault("inserted", f"event {event.sequence} does not continue the chain")
    return None


def _is_composed(event: AuditFields) -> bool:
    return isinstance(schema_of(type(event)).declared.id, CompositeId)


def _id_of(event: AuditFields) -> str:
    """The id that its hash vouches for."""
    identity = schema_of(type(event)).declared.id
    if not isinstance(identity, CompositeId):
        return event.id
    return identity.make(event.__getattribute__) or ""
