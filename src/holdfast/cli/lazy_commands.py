"""The commands there are, told without loading them.

Help and completion say what every command does, and must not wait for what only its run needs. So each module
of a command says it in its first line, "`holdfast NAME`: what it does.", and is read, not imported, until
somebody types that name. A service's commands are in `commands` in its folder; those of services that other
packages announce are loaded at once, for they may lie anywhere.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from holdfast import services
from holdfast.config import load_config
from holdfast.errors import ConfigError

_FIRST: Final = ("serve", "work", "demo", "doctor", "backup", "copy", "new")
_TOLD: Final = re.compile(r'"""`holdfast ([a-z0-9-]+)`: (.+?\.)("""|$)')


class LazyCommand(TyperCommand):
    """A command that is told of, and loaded when somebody types its name."""

    def __init__(self, name: str, told: str, load: Callable[[], Any]) -> None:
        super().__init__(name, help=told[:1].upper() + told[1:])
        self._load = load

    @cached_property
    def itself(self) -> TyperCommand | TyperGroup:
        """The command, loaded."""
        return _made(self.name or "", self._load(), told=self.help)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.itself.make_context(info_name, args, parent=parent, **extra)


class LazyGroup(TyperGroup):
    """All of them: the project's own, those everybody needs first, then those of the services."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        of_services = _chosen([*_of_services(), *_of_outside_services()])
        for command in (*_own(), *of_services):
            self.add_command(command)


def _own() -> list[LazyCommand]:
    package = Path(__file__).parents[1]
    found = [_later(path, f"holdfast.cli.{path.stem}") for path in (package / "cli").glob("*.py")]
    found.append(_later(package / "demo" / "commands.py", "holdfast.demo.commands"))
    return sorted((one for one in found if one is not None), key=lambda one: _place(one.name or ""))


def _place(name: str) -> tuple[int, str]:
    return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)


def _chosen(commands: list[TyperCommand | TyperGroup]) -> list[TyperCommand | TyperGroup]:
    """The commands of the services that are chosen; all while the settings can't be read."""
    try:
        names = load_config().services
    except ConfigError:
        return commands
    addresses = None if names is None else [name.replace("_", "-") for name in names]
    return [one for one in commands if addresses is None or one.name in addresses]


def _of_services() -> Iterator[LazyCommand]:
    for folder in services.folders():
        place = Path(services.__path__[0], folder)
        for path in (place / "commands.py", place / "commands" / "__init__.py"):
            command = _later(path, f"holdfast.services.{folder}.commands")
            if command is not None:
                yield command


def _of_outside_services() -> Iterator[TyperCommand | TyperGroup]:
    for service in services.announced():
        if isinstance(service.commands, typer.Typer):
            yield _made(service.address, service.commands)


def _later(path: Path, module: str) -> LazyCommand | None:
    if not path.exists():
        return None
    with path.open(encoding="utf-8") as file:
        told = _TOLD.match(file.readline().rstrip())
    return told and LazyCommand(told[1], told[2], lambda: _in_module(importlib.import_module(module)))


def _in_module(module: Any) -> Any:
    """A group of commands is called `commands`; a command alone has the module's name."""
    return getattr(module, "commands", None) or getattr(module, module.__name__.rpartition(".")[2])


def _made(name: str, commands: Any, *, told: str | None = None) -> TyperCommand | TyperGroup:
    shelf = typer.Typer()
    if isinstance(commands, typer.Typer):
        shelf.add_typer(commands, name=name, help=told or commands.info.help)
        _show_examples(shelf)
    else:
        shelf.command(name)(commands)
    made = typer.main.get_group(shelf).commands[name]
    assert isinstance(made, TyperCommand | TyperGroup)
    return made


def _show_examples(commands: typer.Typer) -> None:
    """Let the help of each group show the first line that the help of a command in it gives to type."""
    for group in commands.registered_groups:
        if group.typer_instance is not None:
            group.epilog = _example_in(group.typer_instance)
            _show_examples(group.typer_instance)


def _example_in(commands: typer.Typer) -> str:
    told = (one.callback.__doc__ or "" for one in commands.registered_commands if one.callback is not None)
    lines = (line.strip() for text in told for line in text.splitlines())
    own = (f"Example: {line}" for line in lines if line.startswith("holdfast "))
    inner = (_example_in(one.typer_instance) for one in commands.registered_groups if one.typer_instance)
    return next(own, "") or next(filter(None, inner), "")
