"""The command line. Each module here that says "`holdfast NAME`: ..." in its first line is a command."""

from __future__ import annotations

import faulthandler
import os
import sys
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli.lazy_commands import LazyGroup
from holdfast.errors import HoldfastError

app = typer.Typer(
    help="""Holdfast keeps what an integration must not forget.

    \b
    Examples:
      holdfast demo                      try everything out on this machine
      holdfast serve                     answer and work, with every service
      holdfast doctor                    what is wrong, and what to do about it
      holdfast new parcel_watch          a service of your own, whole and running
      holdfast deliveries list --help    every command's help shows what to type
    """,
    cls=LazyGroup,
    no_args_is_help=True,
    # A traceback with local values would print secrets.
    pretty_exceptions_enable=False,
)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    # What commands work with takes longest to load, and only a command that runs comes here.
    from holdfast.cli import context

    ctx.obj = context


def main() -> None:
    """Run the command line: exit 2 for wrong usage, 1 with one line for an error we know."""
    # A signal such as SIGBUS, by a file that is cut off under a mapping, ends the process with a trace.
    faulthandler.enable()
    try:
        app()
    except HoldfastError as error:
        sys.stderr.write(f"holdfast: {error.message}\n")
        sys.exit(1)
    except OSError as error:
        # What could not be written would be tried again when the process ends, and told in its own way.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        place = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"holdfast: {place}{error.strerror or error}\n")
        sys.exit(1)
