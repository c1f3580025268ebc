"""What a caller with an idempotency key does next: a pure rule over the stored record."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.clock import to_us
from holdfast.errors import KeyReusedError
from holdfast.kit.idempotency.models import IdempotencyFields, StoredResponse


class Proceed(msgspec.Struct, frozen=True):
    """Do the work, under this fencing number."""

    fence: int


class Replay(msgspec.Struct, frozen=True):
    """Return this stored response."""

    answer: StoredResponse


class Wait(msgspec.Struct, frozen=True):
    """Another caller is working on it, for at most this long."""

    after_s: float


def decide(stored: IdempotencyFields | None, *, body_hash: str, now: datetime) -> Proceed | Replay | Wait:
    """The first caller proceeds, all others get its response; another body under the key is refused."""
    if stored is None:
        # Fences start at the time, so that a record that was deleted and created again never repeats one.
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
