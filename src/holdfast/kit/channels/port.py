"""What a provider of watch channels must do: open and stop. Verifying is the inbox's."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider says of a channel it opened: its own name for it, and when it ends."""

    resource_id: str
    expires_at: datetime


class ChannelProvider(Protocol):
    """Opens and stops channels. Both may be asked again for what they did already.

    Raise `ReauthRequiredError` when the credentials are gone, `RetryLaterError` (with `after_s`) when
    asked to wait and nothing was opened, `NotFoundError` from `stop` when there is no such channel. After
    any other error the kit takes it that the channel may be open.
    """

    async def open(self, watched_id: str, *, channel_id: str, token: str, ttl_s: float) -> Opened:
        """Let changes of what is watched be told under this channel id, carrying the token."""
        ...

    async def stop(self, watched_id: str, *, channel_id: str, resource_id: str) -> None:
        """End a channel.

        Where the channel's own `resource_id` was never learnt, it is the last one known for what is
        watched, or empty.
        """
        ...
