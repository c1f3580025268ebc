"""Finds the simulators: each folder here has a function `simulator` that builds one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from holdfast.clock import Clock
from holdfast.errors import DeclarationError

PACKAGE = "holdfast.simulators"


class Simulator(Protocol):
    """An async context manager; inside it answers at `url`."""

    @property
    def url(self) -> str: ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None: ...


SimulatorFactory: TypeAlias = Callable[[Clock, int], Simulator]


def find_simulators() -> dict[str, SimulatorFactory]:
    """The factory of each simulator by name; it takes a clock and a port (0: any free one)."""
    package = importlib.import_module(PACKAGE)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    return {name: _factory_in(name) for name in names}


def _factory_in(name: str) -> SimulatorFactory:
    module = importlib.import_module(f"{PACKAGE}.{name}")
    factory: SimulatorFactory | None = getattr(module, "simulator", None)
    if factory is None:
        raise DeclarationError(f"{module.__name__} must have `def simulator(clock, port)`")
    return factory
