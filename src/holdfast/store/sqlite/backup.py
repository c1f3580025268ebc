"""Online backup of a SQLite file."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

from holdfast.errors import ConfigError, StoreUnavailableError
from holdfast.private_files import create_file

PAGES_PER_STEP = 1_000


def back_up(connection: apsw.Connection, target: Path) -> int:
    """Copy the database to a new file in steps, while others write; return the copy's size in bytes."""
    if target.exists():
        raise ConfigError(f"{target} already exists, and a backup never overwrites; choose another name")
    partial = target.with_name(target.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        create_file(partial)
        _copy(connection, partial)
        partial.rename(target)
        return target.stat().st_size
    except (apsw.Error, OSError) as fault:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise StoreUnavailableError(
            f"the backup can't be written to {target}: {fault}; check the folder and the free space"
        ) from None


def _copy(connection: apsw.Connection, partial: Path) -> None:
    copy = apsw.Connection(str(partial))
    try:
        # A read transaction pins one snapshot, so the copy need not start over when others write.
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        with copy.backup("main", connection, "main") as steps:
            while not steps.done:
                steps.step(PAGES_PER_STEP)
    finally:
        connection.execute("ROLLBACK")
        copy.close()
