"""Resting between two turns of a loop: until a bell rings, the clock says so, or it is time to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from holdfast.clock import Clock
from holdfast.store.port import Subscription

# The injected clock ends the wait; the bell's own limit only keeps a forgotten one from hanging forever.
BELL_S_MAX: Final = 3_600.0


async def wait_for_wake(
    clock: Clock, seconds: float, *, wake: Subscription | None = None, stop: asyncio.Event | None = None
) -> None:
    """Return after `seconds` by the clock, or sooner when `wake` rings or `stop` is set.

    Example: `await rest(store.clock, 5.0, wake=bell, stop=stop)`
    """
    if stop is not None and stop.is_set():
        return
    reasons: list[Coroutine[Any, Any, object]] = [clock.sleep(seconds)]
    if wake is not None:
        reasons.append(wake.wait(BELL_S_MAX))
    if stop is not None:
        reasons.append(stop.wait())
    await wait_first(*reasons)


async def wait_first(*reasons: Coroutine[Any, Any, object]) -> None:
    """Run all, return when the first has ended, and end the others; a fault of the first is raised."""
    tasks = [asyncio.ensure_future(reason) for reason in reasons]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def cancel_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel these and return when they are over, however they end."""
    ended = list(tasks)
    for task in ended:
        task.cancel()
    await asyncio.gather(*ended, return_exceptions=True)
