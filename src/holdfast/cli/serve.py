"""`holdfast serve`: serve HTTP, and work on what is due, until Ctrl-C or SIGTERM."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.config import load_config
from holdfast.logs import log_to_stdout
from holdfast.server import run


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Serve this service alone; repeat for more.")] = None,
    work: Annotated[
        bool, typer.Option("--work/--no-work", help="Run the workers here, or leave them to others.")
    ] = True,
) -> None:
    """Serve HTTP, and work on what is due, until Ctrl-C or SIGTERM.

    \b
    Examples:
      holdfast serve                              every service, each under its name
      holdfast serve --only calendar-sync         one service, at the root
      holdfast serve --no-work --port 9000        answers only; run `holdfast work` besides
    """
    log_to_stdout()
    run(load_config({"host": host, "port": port}), only=only, work=work)
