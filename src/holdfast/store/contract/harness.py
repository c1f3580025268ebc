"""How the suite opens an engine under test."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.clock import Clock
from holdfast.model import Document
from holdfast.store.catalog import Catalog
from holdfast.store.contract.models import ALL
from holdfast.store.port import Engine
from holdfast.store.store import Store

Connect = Callable[[str, Catalog], Awaitable[Engine]]


@dataclass(frozen=True)
class EngineHarness:
    """An engine's `connect`, a module-level function so that another process finds it, and a URL."""

    connect: Connect
    url: str

    @contextlib.asynccontextmanager
    async def open(
        self,
        clock: Clock | None = None,
        *,
        classes: Iterable[type[Document]] = ALL,
        env: str = "dev",
        migrate: bool = True,
    ) -> AsyncIterator[Store]:
        """Open a store; opening twice gives two stores over the same documents."""
        store = Store(await self.connect(self.url, Catalog(classes, env)), clock=clock)
        try:
            if migrate:
                await store.migrate()
            yield store
        finally:
            await store.close()

    @property
    def address(self) -> list[str]:
        """Return the two arguments from which another process opens the same store."""
        return [f"{self.connect.__module__}:{self.connect.__qualname__}", self.url]


def exact(value: Any) -> str:
    """Return a value with its types: 1, 1.0, True and -0.0 differ, the order of a mapping's keys doesn't."""
    if isinstance(value, dict):
        inside = sorted(f"{name!r}: {exact(item)}" for name, item in value.items())
        return "{" + ", ".join(inside) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(exact(item) for item in value) + "]"
    if hasattr(value, "__struct_fields__"):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return f"{type(value).__name__}{exact(fields)}"
    return repr(value)
