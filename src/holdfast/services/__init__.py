"""The services: one folder each, found by their place, and those that other packages announce."""

from __future__ import annotations

import pkgutil
import traceback
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.service import Service


def folders() -> list[str]:
    """The names of the services there are; none of them is loaded."""
    return [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]


def announced() -> Iterator[Service]:
    """The services of other packages, loaded; `ConfigError` names the one that can't be, and the place."""
    for entry in entry_points(group=__name__):
        yield _loaded(entry)


def _loaded(entry: EntryPoint) -> Service:
    # Late: whoever only asks which folders there are must not wait for the kit.
    from holdfast.service import Service

    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "a package"
    said = f"the service {entry.name} of {package} can't be loaded"
    try:
        found = entry.load()
    except Exception as fault:
        where = traceback.extract_tb(fault.__traceback__)[-1]
        why = f"{type(fault).__name__}: {fault} ({where.filename}:{where.lineno})"
        raise ConfigError(f"{said}: {why}; mend or uninstall it") from fault
    if not isinstance(found, Service):
        raise ConfigError(f"{said}: {entry.value} is no Service; fix or uninstall it")
    return found
