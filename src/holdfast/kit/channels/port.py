"""The port of a provider of watch channels: open and stop. The inbox verifies."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's answer for an opened channel: its resource id, and when it ends."""

    resource_id: str
    expires_at: datetime


class ChannelProvider(Protocol):
    """Opens and stops channels; both must be idempotent.

    Raise `ReauthRequiredError` when the credentials are gone, `RetryLaterError` (with `after_s`) when asked
    to wait and nothing was opened, `NotFoundError` from `stop` when there is no such channel. After any other
    error the kit assumes that the channel may be open.
    """

    async def open(self, watched_id: str, *, channel_id: str, token: str, ttl_s: float) -> Opened:
        """Open a channel under this id, whose notifications carry the token."""
        ...

    async def stop(self, watched_id: str, *, channel_id: str, resource_id: str) -> None:
        """Stop a channel.

        Where the channel's own `resource_id` was never learnt, it is the last known one of the watched
        resource, or empty.
        """
        ...
