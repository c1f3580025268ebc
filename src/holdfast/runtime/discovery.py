"""The services there are: found by their place, or announced by other packages."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from holdfast import services
from holdfast.errors import ConfigError, DeclarationError
from holdfast.service import Service


def find_services() -> list[Service]:
    """Every service there is: the folders of `holdfast.services`, and what other packages announce."""
    found = [_service_in(name) for name in services.folders()]
    found += services.announced()
    names = [service.name for service in found]
    for name in names:
        if names.count(name) > 1:
            raise DeclarationError(f"two services are called {name!r}; rename one")
    return sorted(found, key=lambda service: service.name)


def _service_in(folder: str) -> Service:
    module = importlib.import_module(f"{services.__name__}.{folder}")
    service = getattr(module, "service", None)
    if not isinstance(service, Service) or service.name != folder:
        raise DeclarationError(f"{module.__name__} must have `service = Service(name={folder!r}, ...)`")
    return service


def chosen_of(there: Sequence[Service], only: Sequence[str] | None) -> list[Service]:
    """Those that are named, in that order; all where none is named; `ConfigError` for an unknown name."""
    if not only:
        return list(there)
    known = {word: service for service in there for word in (service.name, service.address)}
    unknown = [name for name in only if name not in known]
    if unknown:
        names = ", ".join(sorted(service.address for service in there)) or "none"
        raise ConfigError(
            f"--only {unknown[0]}: there is no service of that name; there are: {names}", "only"
        )
    return [known[name] for name in dict.fromkeys(only)]
