"""How long a request may take: set when it comes in, moved by the route that answers it."""

from __future__ import annotations

import asyncio
from typing import Any, Final

_KEY: Final = "time_limit"


def note(scope: Any, limit: asyncio.Timeout) -> None:
    """Let what answers the request find its time limit."""
    scope["state"][_KEY] = limit


def allow_time(scope: Any, seconds: float | None) -> None:
    """Give the request so much time from now on; None for as long as it takes."""
    limit: asyncio.Timeout | None = scope["state"].get(_KEY)
    if limit is not None:
        limit.reschedule(None if seconds is None else asyncio.get_running_loop().time() + seconds)
