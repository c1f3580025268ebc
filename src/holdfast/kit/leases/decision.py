"""Whether a lease may be taken: a pure rule over the stored lease and what this process observed."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.clock import to_us
from holdfast.kit.leases.models import LeaseFields


class Sighting(msgspec.Struct, frozen=True):
    """When, by this process's monotonic clock, a lease was first seen in its present state."""

    fence: int
    expires_at: datetime | None
    since_s: float


class Free(msgspec.Struct, frozen=True):
    """Take it under this fencing number."""

    fence: int


class HeldLease(msgspec.Struct, frozen=True):
    """Another holder has it; it may be free after so long."""

    after_s: float


def decide(
    stored: LeaseFields | None, *, now: datetime, monotonic_s: float, sighting: Sighting | None
) -> Free | HeldLease:
    """Free when absent, expired, or observed unrenewed for its whole length.

    `now` must be an instant that no jump of the clock has moved forward. The last rule keeps a clock that was
    set back from leaving a dead holder's lease standing.
    """
    if stored is None:
        # Fences start at the time, so that a document that was deleted and created again never repeats one.
        return Free(to_us(now))
    if stored.expires_at is None or stored.expires_at <= now:
        return Free(stored.fence + 1)
    left_s = (stored.expires_at - now).total_seconds()
    if sighting is not None and _same(sighting, stored):
        unrenewed_left_s = stored.ttl_s - (monotonic_s - sighting.since_s)
        if unrenewed_left_s <= 0:
            return Free(stored.fence + 1)
        left_s = min(left_s, unrenewed_left_s)
    return HeldLease(left_s)


def update_sighting(stored: LeaseFields, sighting: Sighting | None, monotonic_s: float) -> Sighting:
    """The sighting to remember: the old one while nothing changed."""
    if sighting is not None and _same(sighting, stored):
        return sighting
    return Sighting(stored.fence, stored.expires_at, monotonic_s)


def _same(sighting: Sighting, stored: LeaseFields) -> bool:
    return sighting.fence == stored.fence and sighting.expires_at == stored.expires_at
