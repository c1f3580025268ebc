"""What a caller with a key does next: a pure rule over the record that is stored."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.clock import to_us
from holdfast.errors import KeyReusedError
from holdfast.kit.idempotency.models import IdempotencyFields, StoredResponse


class Proceed(msgspec.Struct, frozen=True):
    """Nobody has done it and nobody is at it: do it, under this fencing number."""

    fence: int


class Replay(msgspec.Struct, frozen=True):
    """It was done: give this answer."""

    answer: StoredResponse


class Wait(msgspec.Struct, frozen=True):
    """Somebody is at it, for at most so long before it may be taken over."""

    after_s: float


def decide(stored: IdempotencyFields | None, *, body_hash: str, now: datetime) -> Proceed | Replay | Wait:
    """First come, first to work; the same answer to all others; another body under the key is refused."""
    if stored is None:
        # Numbers begin at the time, so that a record removed and made anew never repeats one.
        return Proceed(to_us(now))
    if stored.expires_at <= now:
        return Proceed(stored.fence + 1)
    if stored.body_hash != body_hash:
        raise KeyReusedError(f"the key {stored.key!r} was used for another request", "key")
    if stored.result is not None:
        return Replay(stored.result)
    if stored.held_until is None or stored.held_until <= now:
        return Proceed(stored.fence + 1)
    return Wait((stored.held_until - now).total_seconds())
