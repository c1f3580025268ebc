"""`holdfast work`: work on what is due until Ctrl-C or SIGTERM; start as many of these as wanted."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
import uvloop

from holdfast import tracing
from holdfast.config import Config, load_config
from holdfast.logs import log_to_stdout
from holdfast.runtime import Runtime
from holdfast.worker import freeze_gc


def work(
    only: Annotated[
        list[str] | None, typer.Option(help="Work for this service alone; repeat for more.")
    ] = None,
) -> None:
    """Work on what is due until Ctrl-C or SIGTERM; start as many of these as wanted.

    \b
    Examples:
      holdfast serve --no-work & holdfast work & holdfast work
      holdfast work --only calendar-sync
    """
    log_to_stdout()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(load_config(), only))


async def _work(config: Config, only: Sequence[str] | None) -> None:
    tracing.configure_export()
    runtime = await Runtime.open(config, only=only)
    try:
        stop = asyncio.Event()
        for one in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(one, stop.set)
        loops = ", ".join(status.name for status in runtime.supervisor.status())
        sys.stderr.write(f"holdfast works: {loops} (Ctrl-C stops it)\n")
        sys.stderr.flush()
        freeze_gc()
        await runtime.work(stop)
    finally:
        await runtime.close()
