"""Tells processes on one file which collections were committed to: a memory-mapped file beside the database.

Each process has a row of it and writes a stamp into the slot of a collection after each commit; the others
compare. A look costs a few microseconds, so they can look every millisecond. What the board misses (rows or
slots that coincide, programs other than this) is found by SQLite's own counter.
"""

from __future__ import annotations

import mmap
import os
import secrets
import time
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.model.schema import Schema

ROWS: Final = 32
SLOTS: Final = 64
STAMP_BYTES: Final = 8
_ROW_BYTES: Final = SLOTS * STAMP_BYTES
_BYTES: Final = ROWS * _ROW_BYTES


class CommitBoard:
    """The board of one database as one process sees it.

    `post` may be called in another thread than `changes`.
    """

    def __init__(self, path: str, tables: Mapping[Schema[Any], str]) -> None:
        """Open the board of the database at `path`; raises OSError where there can be none."""
        self._slots = {one: zlib.crc32(table.encode()) % SLOTS * STAMP_BYTES for one, table in tables.items()}
        self._row = secrets.randbelow(ROWS) * _ROW_BYTES
        self._own = bytearray(_ROW_BYTES)
        self._map = _open(f"{path}-board")
        self._seen = self._map[:]

    def post(self, schemas: Iterable[Schema[Any]]) -> None:
        """Tell the other processes of a commit."""
        stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "little")
        for slot in {self._slots[schema] for schema in schemas if schema in self._slots}:
            self._own[slot : slot + STAMP_BYTES] = stamp
            at = self._row + slot
            self._map[at : at + STAMP_BYTES] = stamp

    def changes(self) -> set[Schema[Any]]:
        """Return the collections that other processes have committed to since the last call."""
        now = self._map[:]
        if now == self._seen:
            return set()
        seen, self._seen = self._seen, now
        changed: set[int] = set()
        for row in range(0, _BYTES, _ROW_BYTES):
            if now[row : row + _ROW_BYTES] != seen[row : row + _ROW_BYTES]:
                own = self._own if row == self._row else b""
                changed |= _changed_slots(now[row : row + _ROW_BYTES], seen[row : row + _ROW_BYTES], own)
        return {schema for schema, slot in self._slots.items() if slot in changed}

    def close(self) -> None:
        self._map.close()


def _changed_slots(now: bytes, seen: bytes, own: bytes | bytearray) -> set[int]:
    """The slots of a row with a new stamp that this process did not write itself."""
    return {
        slot
        for slot in range(0, _ROW_BYTES, STAMP_BYTES)
        if (stamp := now[slot : slot + STAMP_BYTES]) != seen[slot : slot + STAMP_BYTES]
        and stamp != own[slot : slot + STAMP_BYTES]
    }


def _open(path: str) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Written out: a write to a mapped page for which a full disk has no room would end the process.
        size = os.fstat(descriptor).st_size
        os.pwrite(descriptor, bytes(max(0, _BYTES - size)), size)
        return mmap.mmap(descriptor, _BYTES)
    finally:
        os.close(descriptor)
