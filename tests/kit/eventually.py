"""Waiting in a test for what another task brings about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.kit.runs import RunFields, Runs


async def until(true: Callable[[], bool], *, within_s: float = 30.0) -> None:
    """Return once it is true; fail when it is not in time."""
    async with asyncio.timeout(within_s):
        while not true():  # noqa: ASYNC110 - what is waited for tells nobody when it comes true
            await asyncio.sleep(0.001)


async def until_found(ask: Callable[[], Awaitable[object]], *, within_s: float = 30.0) -> None:
    """Return once asking gives something; fail when it does not in time."""
    async with asyncio.timeout(within_s):
        while not await ask():  # noqa: ASYNC110 - other processes and stores tell nobody
            await asyncio.sleep(0.01)


async def ended(runs: Runs, run_id: str, *, within_s: float = 30.0) -> RunFields:
    """The run once it is over; where it never is, the failure shows how it stands."""
    run: RunFields | None = None
    try:
        async with asyncio.timeout(within_s):
            while run is None or run.completed_at is None:
                run = await runs.get(run_id)
                assert run is not None
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not over after {within_s} s: {run}") from None
    return run
