"""Connections to a SQLite file: one place for every pragma."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import apsw
import msgspec

from holdfast.errors import ConfigError, HoldfastError, StoreUnavailableError
from holdfast.private_files import create_file
from holdfast.store.sql.migration import NOT_MIGRATED

EAGER_TRIES: Final = 10
# Mapped pages are a part of the resident memory of the process, once for each connection.
MAPPED_BYTES_MAX: Final = 67_108_864


class Options(msgspec.Struct, frozen=True):
    """The options of a URL: `sqlite:///file.db?synchronous=normal&busy_s=30`."""

    path: str
    synchronous: str = "FULL"
    busy_s: float = 30.0


def parse_url(url: str) -> Options:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.scheme != "sqlite" or parts.netloc or len(path) < 2:
        raise ConfigError(f"{url!r}: write sqlite:///relative.db or sqlite:////absolute/file.db")
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    unknown = set(options) - {"synchronous", "busy_s"}
    synchronous = options.get("synchronous", "full").upper()
    if unknown or synchronous not in ("FULL", "NORMAL", "EXTRA"):
        raise ConfigError(f"{url!r}: the options are synchronous=full|normal|extra and busy_s=SECONDS")
    try:
        busy_s = float(options.get("busy_s", 30))
    except ValueError:
        raise ConfigError(f"{url!r}: busy_s is a number of seconds") from None
    return Options(path.removeprefix("/"), synchronous, busy_s)


def open_connection(options: Options, *, writing: bool) -> apsw.Connection:
    """Open a connection with the durability and the lock timeout of the options."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE | apsw.SQLITE_OPEN_NOMUTEX
    path = Path(options.path)
    try:
        # The log and the shared memory beside it take over its mode.
        create_file(path)
        connection = apsw.Connection(str(path), flags=flags, statementcachesize=500)
        connection.set_busy_handler(BusyHandler(options.busy_s))
        if writing and one(connection, "PRAGMA page_count")[0] == 0:
            # Lets free pages go back to the disk bit by bit. In another file it would only be a write.
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {options.synchronous}")
        connection.execute("PRAGMA temp_store = MEMORY")
        # Readers map the first part of the file; else they only cache pages of the log, which is
        # checkpointed at 16 MB. Pages that a writer visits are in its cache and would count twice.
        connection.execute(f"PRAGMA cache_size = {-65536 if writing else -16384}")
        connection.execute(f"PRAGMA mmap_size = {0 if writing else MAPPED_BYTES_MAX}")
        # The writer decides when; see `Checkpointer`.
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("PRAGMA journal_size_limit = 67108864")
    except (apsw.Error, OSError) as fault:
        raise StoreUnavailableError(
            f"can't open {options.path}: {fault}; check that the folder is writable"
        ) from None
    return connection


class BusyHandler:
    """Waits for a lock, or gives up at once where `waits` is unset.

    Shortly and unevenly, so that a process that commits without pause can't starve this one.
    """

    def __init__(self, busy_s: float) -> None:
        self._busy_s, self._started = busy_s, 0.0
        self.waits = True

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if tries == 0:
            self._started = now
        if not self.waits or now - self._started > self._busy_s:
            return False
        # A commit takes a fraction of a millisecond; whoever has waited for many need not look that often.
        time.sleep(random.uniform(0.00005, 0.0003 if tries < EAGER_TRIES else 0.001))
        return True


def refused(fault: apsw.Error) -> HoldfastError:
    """Return SQLite's error as ours."""
    if "no such table" in str(fault) or "no such column" in str(fault):
        return ConfigError(f"SQLite refused: {fault}; {NOT_MIGRATED}")
    return StoreUnavailableError(f"SQLite refused: {fault}; nothing was written")


def one(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the row of a statement that always has one."""
    row: tuple[Any, ...] | None = connection.execute(sql, values).fetchone()
    assert row is not None
    return row
