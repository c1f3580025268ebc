"""Which document classes a command is about: those of the services, or those a person names."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import typer

from holdfast.config import load_config
from holdfast.model.document import Document, declared_in
from holdfast.runtime import documents_of, find_services, select_services


def document_classes(names: Sequence[str]) -> list[type[Document]]:
    """The classes in `package.module` or `package.module:Name`; without names, all a process
    keeps: the kit's and those of the chosen services.

    A name that leads nowhere is wrong usage: the command ends with exit code 2.
    """
    # Like `python -m`: what lies in the working directory can be named.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = [cls for name in names for cls in _named(name)] if names else _of_chosen_services()
    return list(dict.fromkeys(found))


def _of_chosen_services() -> list[type[Document]]:
    return documents_of(select_services(find_services(), load_config().services))


def _named(name: str) -> list[type[Document]]:
    module_name, _, class_name = name.partition(":")
    classes = declared_in(vars(_module(module_name)))
    if class_name:
        classes = [cls for cls in classes if cls.__name__ == class_name]
    if not classes:
        wanted = f"no document class {class_name!r}" if class_name else "no document classes"
        raise typer.BadParameter(f"{module_name} declares {wanted}", param_hint="--models")
    return classes


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        # A module that is there but lacks something it imports needs another answer.
        if missing.name and (name == missing.name or name.startswith(f"{missing.name}.")):
            raise typer.BadParameter(f"there is no module {name!r}", param_hint="--models") from None
        raise typer.BadParameter(f"{name} needs {missing.name}", param_hint="--models") from None
    except (ValueError, TypeError):
        raise typer.BadParameter(f"{name!r} is no module's name", param_hint="--models") from None
