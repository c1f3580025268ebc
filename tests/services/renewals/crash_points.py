"""Processes that carry a job up to an exact point, and die or stand still there."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import pytest

from tests.faults.controlled_process import ControlledProcess, run_processes

MODULE: Final = "tests.services.renewals.worker_processes"
# How many a job takes at once.
PAGE: Final = 5
# Longer than any claim is held.
AHEAD_S: Final = 10


def order(url: str, point: str, commit: str, number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "url": url, "page": PAGE, "point": point, "commit": commit, "number": number, "signal": "SIGKILL",
        "ahead_s": 0, **more,
    }  # fmt: skip


def orders(url: str, stages: Sequence[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """One after another, each so far ahead that it need not wait for what the one before it held."""
    return [order(url, *stage, ahead_s=AHEAD_S * number) for number, stage in enumerate(stages)]


async def until_dead(process: ControlledProcess) -> None:
    """Let it work until it dies."""
    await process.hear_until("ready")
    process.say("go")
    with pytest.raises(RuntimeError, match="the process ended with -9"):
        await process.hear_until("the end of time")


@contextlib.asynccontextmanager
async def standing(
    role: str, url: str, commit: str, number: int = 2, **more: Any
) -> AsyncIterator[ControlledProcess]:
    """A process that stands still before its second commit of a kind, until it is told to go on."""
    halted = order(url, "before", commit, number, signal="SIGSTOP", **more)
    async with run_processes(MODULE, role, halted) as (process,):
        await process.hear_until("ready")
        process.say("go")
        async with asyncio.timeout(30):
            while not process.paused:  # noqa: ASYNC110 - a signal's effect notifies nobody
                await asyncio.sleep(0.01)
        yield process
