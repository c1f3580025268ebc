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
    help="""Holdfast keeps what an integration must not forget.

    \b
    Examples:
      holdfast demo                      try everything out on this machine
      holdfast serve                     answer and work, with every service
      holdfast doctor                    what is wrong, and what to do about it
      holdfast new parcel_watch          a service of your own, whole and running
      holdfast deliveries list --help    every command's help shows what to type
    """,
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


def _show_examples(commands: typer.Typer) -> None:
    """Let the help of each group show the first line that the help of its first command gives to type."""
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            group.epilog = _example_in(group.typer_instance)
            _show_examples(group.typer_instance)


def _example_in(commands: typer.Typer) -> str:
    told = (one.callback.__doc__ or "" for one in commands.registered_commands if one.callback is not None)
    lines = (line.strip() for text in told for line in text.splitlines())
    return next((f"Example: {line}" for line in lines if line.startswith("holdfast ")), "")


for command in (serve, work, demo, doctor, backup, copy, new):
    app.command()(command)
_add_sub_apps()
_add_services()
_show_examples(app)


def main() -> None:
    """Run the command line: exit 2 for wrong usage, 1 with one line for an error we know."""
    try:
        app()
    except HoldfastError as error:
        sys.stderr.write(f"holdfast: {error.message}\n")
        sys.exit(1)
