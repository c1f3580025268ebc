"""`holdfast simulators`: run a stand-in for an outside service."""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Annotated

import typer

from holdfast.cli.context import AsJson, print_table
from holdfast.clock import SystemClock
from holdfast.errors import ConfigError
from holdfast.logs import log_to_stderr
from holdfast.simulators.discovery import Simulator, find_simulators

commands = typer.Typer(no_args_is_help=True)


def _known(name: str) -> str:
    there = list(find_simulators())
    if name not in there:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(there)}")
    return name


@commands.command("list")
def list_command(as_json: AsJson = False) -> None:
    """Show which there are.

    \b
    Example:
      holdfast simulators list
    """
    rows = [
        {"name": name, "what": ((make.__module__ and sys.modules[make.__module__].__doc__) or "").strip()}
        for name, make in find_simulators().items()
    ]
    print_table(rows, ("name", "what"), as_json=as_json)


@commands.command("run")
def run_command(
    name: Annotated[str, typer.Argument(callback=_known, help="As `simulators list` shows it.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on loopback; 0 takes any free one.")] = 0,
) -> None:
    """Run one on loopback until Ctrl-C.

    \b
    Examples:
      holdfast simulators run rms --port 9002
      curl localhost:9002/_control
      curl -X POST localhost:9002/_control/behave -d '{"failureRate": 0.3}'
    """
    log_to_stderr()
    asyncio.run(_run(name, find_simulators()[name](SystemClock(), port)))


async def _run(name: str, simulator: Simulator) -> None:
    stop = asyncio.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(one, stop.set)
    try:
        await simulator.__aenter__()
    except OSError as fault:
        raise ConfigError(f"{name} can't listen: {fault.strerror or fault}; choose another --port") from None
    try:
        sys.stderr.write(f"{name} is simulated on {simulator.url} (Ctrl-C stops it)\n")
        sys.stderr.flush()
        await stop.wait()
    finally:
        await simulator.__aexit__(None, None, None)
