"""Names of stores for people: the URL without secrets."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.config import redact


def local_file(url: str) -> Path | None:
    """The file of a SQLite URL; None for other engines."""
    parts = urlsplit(url)
    return Path(unquote(parts.path).removeprefix("/")).absolute() if parts.scheme == "sqlite" else None


def name_of(url: str) -> str:
    """The store's URL in a canonical form, without password.

    Example: `name_of("postgresql://app:hunter2@db/shop")` gives `postgresql://app:***@db/shop`
    """
    file = local_file(url)
    return redact(url) if file is None else f"sqlite:///{file}"
