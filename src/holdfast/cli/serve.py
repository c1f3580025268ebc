"""`holdfast serve`: run the server until it is told to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from holdfast.config import load_config
from holdfast.errors import ConfigError
from holdfast.http.server import run


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes any free one.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Serve this service alone; repeat for more.")] = None,
) -> None:
    """Serve HTTP until Ctrl-C or SIGTERM."""
    if only:
        # Refused rather than ignored: a typing error must not serve more than was asked for.
        raise ConfigError(f"--only {only[0]}: there is no service of that name", "only")
    run(load_config({"host": host, "port": port}))
