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
from array import array
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.model.schema import Schema

ROWS: Final = 32
SLOTS: Final = 64
_STAMP: Final = "Q"  # 64 bits
_ROW_BYTES: Final = SLOTS * 8
_BYTES: Final = ROWS * _ROW_BYTES
_NONE: Final = array(_STAMP, bytes(_ROW_BYTES))


class CommitBoard:
    """The board of one database as one process sees it.

    `post` may be called in another thread than `changes`.
    """

    def __init__(self, path: str, tables: Mapping[Schema[Any], str]) -> None:
        """Open the board of the database at `path`; raises OSError where there can be none."""
        self._slots = {one: zlib.crc32(table.encode()) % SLOTS for one, table in tables.items()}
        self._row = secrets.randbelow(ROWS)
        self._own = array(_STAMP, bytes(_ROW_BYTES))
        self._map = _open(f"{path}-board")
        self._stamps = memoryview(self._map).cast(_STAMP)
        self._row_stamps = self._stamps[self._row * SLOTS : (self._row + 1) * SLOTS]
        self._seen = self._map[:]

    def post(self, schemas: Iterable[Schema[Any]]) -> None:
        """Tell the other processes of a commit."""
        stamp = time.monotonic_ns()
        for schema in schemas:
            slot = self._slots.get(schema)
            if slot is not None:
                self._own[slot] = self._row_stamps[slot] = stamp

    def changes(self) -> set[Schema[Any]]:
        """Return the collections that other processes have committed to since the last call."""
        now = self._map[:]
        if now == self._seen:
            return set()
        seen, self._seen = self._seen, now
        changed: set[int] = set()
        for row in range(ROWS):
            at = slice(row * _ROW_BYTES, (row + 1) * _ROW_BYTES)
            if now[at] != seen[at]:
                own = self._own if row == self._row else _NONE
                changed |= _changed_slots(array(_STAMP, now[at]), array(_STAMP, seen[at]), own)
        return {schema for schema, slot in self._slots.items() if slot in changed}

    def close(self) -> None:
        self._row_stamps.release()
        self._stamps.release()
        self._map.close()


def _changed_slots(now: array[int], seen: array[int], own: array[int]) -> set[int]:
    """The slots of a row with a new stamp that this process did not write itself."""
    stamps = enumerate(zip(now, seen, own, strict=True))
    return {slot for slot, (stamp, before, posted) in stamps if stamp not in (before, posted)}


def _open(path: str) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Written out: a write to a mapped page for which a full disk has no room would end the process.
        size = os.fstat(descriptor).st_size
        os.pwrite(descriptor, bytes(max(0, _BYTES - size)), size)
        return mmap.mmap(descriptor, _BYTES)
    finally:
        os.close(descriptor)
