"""The services, one folder each: found by their place."""

from __future__ import annotations

import pkgutil


def folders() -> list[str]:
    """The names of the services there are; none of them is loaded."""
    return [module.name for module in pkgutil.iter_modules(__path__) if module.ispkg]
