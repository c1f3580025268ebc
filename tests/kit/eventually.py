"""Waiting in a test for what another task brings about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(true: Callable[[], bool], *, within_s: float = 10.0) -> None:
    """Return once it is true; fail when it is not in time."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - what is waited for tells nobody when it comes true
            await asyncio.sleep(0.001)
