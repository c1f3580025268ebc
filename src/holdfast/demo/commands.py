"""`holdfast demo`: play every service on simulated outside worlds, with made-up data, until Ctrl-C."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.config import load_config
from holdfast.demo.process import run_demo
from holdfast.logs import log_to_stderr


def demo(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.")] = None,
) -> None:
    """Play every service on simulated outside worlds, with made-up data, until Ctrl-C.

    \b
    Examples:
      holdfast demo                               then open what it prints
      PORT=9000 holdfast demo                     on another port
      HOLDFAST_HOME=/tmp/play holdfast demo       with its data elsewhere

    Nothing leaves this machine. Data stays in HOLDFAST_HOME and is found again at the next start; to begin
    anew, delete that folder. A store that holds anything but a demo's data is refused.
    """
    log_to_stderr()
    run_demo(load_config({"host": host, "port": port}))


commands = demo
