"""`holdfast demo`: run every service on simulated outside services, with sample data, until Ctrl-C."""

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
    """Run every service on simulated outside services, with sample data, until Ctrl-C.

    \b
    Examples:
      holdfast demo                               then open what it prints
      PORT=9000 holdfast demo                     on another port
      HOLDFAST_HOME=/tmp/play holdfast demo       with its data elsewhere

    Nothing leaves this machine. Data stays in HOLDFAST_HOME for the next start; to start over, delete that
    folder. A store with other data than a demo's is refused.
    """
    log_to_stderr()
    run_demo(load_config({"host": host, "port": port}))


commands = demo
