"""Opens stores: the one module that names engines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from holdfast.clock import Clock, SharedClock
from holdfast.errors import ConfigError, RetryLaterError
from holdfast.model.document import Document
from holdfast.store.catalog import Catalog
from holdfast.store.port import Engine, StorageReport
from holdfast.store.store import Store

SKEW_S_MAX: Final = 86_400.0


async def open_store(
    url: str, classes: Iterable[type[Document]], *, env: str = "dev", clock: Clock | None = None
) -> Store:
    """Open a store for these document classes on the engine that the URL names.

    Its time is the engine's, shared by all processes, unless a `clock` is given.

    Example: `store = await open_store("sqlite:///holdfast.db", [WatchChannel])`
    """
    engine = await _connect(url, Catalog(classes, env))
    clock = SharedClock() if clock is None else clock
    if isinstance(clock, SharedClock):
        try:
            await _sync(clock, engine)
        except BaseException:
            await engine.close()
            raise
    return Store(engine, clock=clock)


async def _sync(clock: SharedClock, engine: Engine) -> None:
    # An unreachable server is asked again before the first claim.
    with contextlib.suppress(RetryLaterError):
        await clock.sync(engine.now_us)
    if abs(clock.skew_s) > SKEW_S_MAX:
        ahead = "ahead of" if clock.skew_s > 0 else "behind"
        raise ConfigError(
            f"this machine's clock is {abs(clock.skew_s) / 3600:.0f} h {ahead} the store's; "
            "set the clock of whichever is wrong, and let NTP keep both"
        )


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
        raise ConfigError(f"{scheme} needs {missing.name}: pip install 'holdfast-kit[{extra}]'") from None
    raise ConfigError(f"no engine for {scheme!r}: use sqlite:///FILE, postgresql://… or firestore://PROJECT")


_BACKUP_TOOLS: Final = {
    "postgres": "use pg_dump, or your provider's snapshots",
    "firestore": "use `gcloud firestore export`",
}


async def back_up(store: Store, target: Path) -> int:
    """Copy a SQLite store to a new file while it is in use; return its size in bytes."""
    name = store.capabilities.name
    if name != "sqlite":
        raise ConfigError(f"only SQLite is copied this way, and this is {name}: {_BACKUP_TOOLS.get(name)}")
    from holdfast.store import sqlite

    assert isinstance(store.engine, sqlite.SqliteEngine)
    return await store.engine.back_up(target)


async def storage_report(store: Store, *, integrity: bool = False) -> StorageReport | None:
    """The size of a SQLite store and what of it is free; None for engines that have a server.

    With `integrity` every page is checked, which takes as long as reading the file.
    """
    if store.capabilities.name != "sqlite":
        return None
    from holdfast.store import sqlite

    assert isinstance(store.engine, sqlite.SqliteEngine)
    return await store.engine.storage_report(integrity=integrity)


def ddl(dialect: str, catalog: Catalog) -> list[str]:
    """The statements that create the catalog's tables: `sqlite` or `postgres`."""
    if dialect == "sqlite":
        from holdfast.store import sqlite

        return sqlite.ddl(catalog)
    if dialect == "postgres":
        from holdfast.store import postgres

        return postgres.ddl(catalog)
    raise ConfigError(f"no SQL for {dialect!r}: use sqlite or postgres")
