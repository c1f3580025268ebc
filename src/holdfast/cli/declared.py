"""Which document classes a command is about: those of the services, or those a person names."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import typer

from holdfast.model.document import Document, declared_in


def document_classes(names: Sequence[str]) -> list[type[Document]]:
    """The classes in `package.module` or `package.module:Name`; without names, every service's.

    A name that leads nowhere is wrong usage: the command ends with exit code 2.
    """
    # Like `python -m`: what lies in the working directory can be named.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    found = [cls for name in names for cls in _named(name)] if names else list(_of_services())
    if not found:
        raise typer.BadParameter(
            "there are no models yet: name a module that declares some, as in --models shop.models",
            param_hint="--models",
        )
    return list(dict.fromkeys(found))


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


def _of_services() -> Iterator[type[Document]]:
    if importlib.util.find_spec("holdfast.services") is None:
        return
    services = importlib.import_module("holdfast.services")
    for folder in pkgutil.iter_modules(services.__path__):
        models = f"{services.__name__}.{folder.name}.models"
        if importlib.util.find_spec(models) is not None:
            yield from declared_in(vars(importlib.import_module(models)))
