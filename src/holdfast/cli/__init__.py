"""The command line. Each module here that has a `commands` app becomes `holdfast <module> ...`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Annotated

import typer

from holdfast import __version__
from holdfast.cli import opened
from holdfast.cli.backup import backup
from holdfast.cli.copy import copy
from holdfast.cli.demo import demo
from holdfast.cli.doctor import doctor
from holdfast.cli.new import new
from holdfast.cli.serve import serve
from holdfast.cli.work import work
from holdfast.errors import HoldfastError
from holdfast.runtime import find_services

app = typer.Typer(
    help="Holdfast keeps what an integration must not forget.",
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
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    ctx.obj = opened


def _add_sub_apps() -> None:
    for module in pkgutil.iter_modules(__path__):
        commands = getattr(importlib.import_module(f"{__name__}.{module.name}"), "commands", None)
        if isinstance(commands, typer.Typer):
            app.add_typer(commands, name=module.name)


def _add_services() -> None:
    for service in find_services():
        if isinstance(service.commands, typer.Typer):
            app.add_typer(service.commands, name=service.address)


for command in (serve, work, demo, doctor, backup, copy, new):
    app.command()(command)
_add_sub_apps()
_add_services()


def main() -> None:
    """Run the command line: exit 2 for wrong usage, 1 with one line for an error we know."""
    try:
        app()
    except HoldfastError as error:
        sys.stderr.write(f"holdfast: {error.message}\n")
        sys.exit(1)
