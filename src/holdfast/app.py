"""The composition root: the one place that names engines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from holdfast.clock import Clock
from holdfast.errors import ConfigError
from holdfast.model.document import Document
from holdfast.store.catalog import Catalog
from holdfast.store.port import Engine
from holdfast.store.store import Store


async def open_store(
    url: str, classes: Iterable[type[Document]], *, env: str = "dev", clock: Clock | None = None
) -> Store:
    """A store for these document classes on the engine the URL names.

    Example: `store = await open_store("sqlite:///holdfast.db", [WatchChannel])`
    """
    return Store(await _connect(url, Catalog(classes, env)), clock=clock)


async def _connect(url: str, catalog: Catalog) -> Engine:
    scheme = url.partition(":")[0]
    try:
        if scheme == "sqlite":
            from holdfast.store import sqlite

            return await sqlite.connect(url, catalog)
        if scheme in ("postgresql", "postgres"):
            from holdfast.store import postgres

            return await postgres.connect(url, catalog)
        if scheme == "firestore":
            from holdfast.store import firestore

            return await firestore.connect(url, catalog)
    except ModuleNotFoundError as missing:
        extra = "postgres" if scheme.startswith("postgres") else scheme
        raise ConfigError(f"{scheme} needs {missing.name}: pip install 'holdfast[{extra}]'") from None
    raise ConfigError(f"no engine for {scheme!r}: use sqlite:///FILE, postgresql://… or firestore://PROJECT")


_BACKED_UP_BY: Final = {
    "postgres": "use pg_dump, or your provider's snapshots",
    "firestore": "use `gcloud firestore export`",
}


async def back_up(store: Store, target: Path) -> int:
    """Copy a SQLite store to a new file while others use it; gives its size in bytes."""
    name = store.capabilities.name
    if name != "sqlite":
        raise ConfigError(f"only SQLite is copied this way, and this is {name}: {_BACKED_UP_BY.get(name)}")
    from holdfast.store import sqlite

    assert isinstance(store.engine, sqlite.SqliteEngine)
    return await store.engine.back_up(target)


def ddl(dialect: str, catalog: Catalog) -> list[str]:
    """The statements that make the catalog's tables: `sqlite` or `postgres`."""
    if dialect == "sqlite":
        from holdfast.store import sqlite

        return sqlite.ddl(catalog)
    if dialect == "postgres":
        from holdfast.store import postgres

        return postgres.ddl(catalog)
    raise ConfigError(f"no SQL for {dialect!r}: use sqlite or postgres")
