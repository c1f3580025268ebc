"""The hash chain, without a store: building and checking links."""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime
from typing import Final, Literal

import msgspec

from holdfast.ids import zero_padded
from holdfast.kit.audit.models import AuditEntry, AuditEvent, AuditHead

PLACE_WIDTH: Final = 12
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")

FaultKind = Literal["missing", "changed", "inserted", "reordered", "cut off", "misfiled"]


class ChainFault(msgspec.Struct, frozen=True):
    """The first fault of a chain, and where it is."""

    kind: FaultKind
    sequence: int
    event_id: str
    message: str


def seal(event: AuditEvent, key: bytes) -> str:
    """The hash of a link: over all its fields and, through `previous`, over all links before it."""
    encoded = _ENCODER.encode(msgspec.structs.replace(event, hash="", id=""))
    if key:
        return hmac.new(key, encoded, hashlib.sha256).hexdigest()
    return hashlib.sha256(encoded).hexdigest()


def link(head: AuditHead, entry: AuditEntry, *, at: datetime, key: bytes) -> tuple[AuditEvent, AuditHead]:
    """The next link and the head after it. Pure."""
    sequence = head.sequence + 1
    event = AuditEvent(
        tenant_id=head.tenant_id, sequence=sequence, place=zero_padded(sequence, PLACE_WIDTH), at=at,
        previous=head.hash, **msgspec.structs.asdict(entry),
    )  # fmt: skip
    event.hash = seal(event, key)
    return event, AuditHead(tenant_id=head.tenant_id, sequence=sequence, hash=event.hash)


def check_link(before: AuditHead, event: AuditEvent, *, stored_id: str, key: bytes) -> ChainFault | None:
    """Check that an event is the next link after `before`; return the fault otherwise."""
    expected = before.sequence + 1

    def fault(kind: FaultKind, message: str) -> ChainFault:
        return ChainFault(kind, expected, stored_id, message)

    if seal(event, key) != event.hash:
        return fault("changed", f"event {event.sequence} was changed after it was written")
    if stored_id != f"{event.tenant_id}_{event.place}" or event.place != zero_padded(
        event.sequence, PLACE_WIDTH
    ):
        return fault("misfiled", f"event {event.sequence} is stored under another id")
    if event.sequence > expected:
        return fault("missing", f"event {expected} is missing; {event.sequence} follows {before.sequence}")
    if event.sequence < expected:
        return fault("reordered", f"event {event.sequence} comes after {before.sequence}")
    if event.previous != before.hash:
        return fault("inserted", f"event {event.sequence} does not continue the chain")
    return None
