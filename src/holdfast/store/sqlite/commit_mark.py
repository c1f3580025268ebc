"""The mark of the newest commit, in a file beside the database and outside its log.

A log that is deleted or replaced after a crash takes acknowledged commits with it, and the database that is
left looks sound. The mark tells: a database that is older than its mark has lost commits.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

import apsw

from holdfast.errors import ConfigError
from holdfast.store.sqlite.connections import one

# Each costs a sync of its own. A mark is of the mark before it, so it may be older than the newest commit by
# twice as much.
MARK_S: Final = 0.25


class CommitMark:
    """Written inside the write transaction, so that of several processes none writes an older mark."""

    def __init__(self, path: str, connection: apsw.Connection) -> None:
        self.file = Path(f"{path}-mark")
        self._database = Path(path)
        self._store_id = one(connection, "SELECT value FROM _holdfast_meta WHERE name = 'store_id'")[0]
        self._version, self._next_s = 0, 0.0

    def check(self, connection: apsw.Connection) -> None:
        """Refuse a database that is older than its mark; a copy put in its place is another file."""
        # Before the version: others commit meanwhile, and a mark read after it may be of a later commit.
        marked = self._marked()
        lost = marked - one(connection, "SELECT value FROM _holdfast_meta WHERE name = 'version'")[0]
        if lost > 0:
            raise ConfigError(
                f"{self._database} has lost up to {lost} of its newest changes: its log "
                f"({self._database}-wal) was deleted or replaced after a crash. Put the log back, or restore "
                f"a backup; to go on without them, delete {self.file}",
                "store",
            )

    def is_due(self, version: int, now_s: float) -> bool:
        """Whether this process has given out versions since its last mark, and that is a while ago."""
        return version != self._version and now_s >= self._next_s

    def write(self, committed: int, *, version: int) -> None:
        """Record the newest version that the file had before this transaction, which must move it on."""
        self._version, self._next_s = version, time.monotonic() + MARK_S
        text = f"{self._store_id} {self._database.stat().st_ino} {committed}\n".encode().ljust(100)
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, text, 0)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _marked(self) -> int:
        try:
            store_id, inode, version = self.file.read_text().split()
        except (OSError, ValueError):
            return 0
        same = store_id == self._store_id and int(inode) == self._database.stat().st_ino
        return int(version) if same else 0
