"""Finds the installed services: by their folder, or by entry point."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from holdfast import services
from holdfast.errors import ConfigError, DeclarationError
from holdfast.service import Service


def find_services() -> list[Service]:
    """Every installed service: the folders of `holdfast.services`, and entry points of other packages."""
    installed = [_service_in(name) for name in services.folders()]
    installed += services.announced()
    names = [service.name for service in installed]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(f"two services are called {name!r}; rename one")
    return sorted(installed, key=lambda service: service.name)


def _service_in(folder: str) -> Service:
    module = importlib.import_module(f"{services.__name__}.{folder}")
    service = getattr(module, "service", None)
    if not isinstance(service, Service) or service.name != folder:
        raise DeclarationError(f"{module.__name__} must have `service = Service(name={folder!r}, ...)`")
    return service


def select_services(
    installed: Sequence[Service], names: Sequence[str] | None, *, source: str = "services"
) -> list[Service]:
    """The named services in that order, all for None; `ConfigError` names the source of an unknown name."""
    if names is None:
        return list(installed)
    known = {word: service for service in installed for word in (service.name, service.address)}
    unknown = [name for name in names if name not in known]
    if unknown:
        there = ", ".join(sorted(service.address for service in installed)) or "none"
        raise ConfigError(
            f"{source}: there is no service {unknown[0]!r}; there are: {there}", source.lstrip("-")
        )
    return [known[name] for name in dict.fromkeys(names)]
