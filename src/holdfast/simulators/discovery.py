"""The simulators there are: each folder here has a `simulator` that makes one for people to play with."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from holdfast.clock import Clock
from holdfast.errors import DeclarationError

PACKAGE = "holdfast.simulators"


class Simulator(Protocol):
    """Something to enter and leave; in between it answers at `url`."""

    @property
    def url(self) -> str: ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None: ...


Make: TypeAlias = Callable[[Clock, int], Simulator]


def find_simulators() -> dict[str, Make]:
    """What makes each simulator, given a clock and a port (0: any free one), by name."""
    package = importlib.import_module(PACKAGE)
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg)
    return {name: _make_in(name) for name in names}


def _make_in(name: str) -> Make:
    module = importlib.import_module(f"{PACKAGE}.{name}")
    make: Make | None = getattr(module, "simulator", None)
    if make is None:
        raise DeclarationError(f"{module.__name__} must have `def simulator(clock, port)`")
    return make
