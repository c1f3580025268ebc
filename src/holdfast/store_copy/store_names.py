"""What a store is called where others may read it: its URL without secrets."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from holdfast.config import redact


def local_file(url: str) -> Path | None:
    """The file that a SQLite URL names; None for other engines."""
    parts = urlsplit(url)
    return Path(unquote(parts.path).removeprefix("/")).absolute() if parts.scheme == "sqlite" else None


def name_of(url: str) -> str:
    """The same for the same store, wherever the command runs; holds no password.

    Example: `name_of("postgresql://app:hunter2@db/shop")` gives `postgresql://app:***@db/shop`
    """
    file = local_file(url)
    return redact(url) if file is None else f"sqlite:///{file}"
