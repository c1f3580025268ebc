"""The size and content limits of index entries."""

from __future__ import annotations

from typing import Any

from holdfast.errors import TooLargeError, WrongTypeError
from holdfast.model.columns import Column
from holdfast.model.index import ResolvedIndex
from holdfast.model.limits import INDEX_ENTRY_BYTES_MAX
from holdfast.model.sort_key import ordered


class IndexEntries:
    """Checks the index entries of one collection's documents."""

    def __init__(self, columns: tuple[Column, ...], indexes: tuple[ResolvedIndex, ...]) -> None:
        self._columns, self._indexes = columns, indexes
        self._lists = any(column.kind == "list" for column in columns)
        # No entry is longer than the JSON and the key twice: where the JSON and eight times the key are no
        # longer than this, and no character is escaped, the values need no check.
        self.short = -1 if self._lists else INDEX_ENTRY_BYTES_MAX - 8 * len(columns)
        self._texts = tuple(n for n, c in enumerate(columns) if c.kind in ("text", "bytes", "open"))

    def check(self, values: tuple[Any, ...], key: str, body: bytes) -> None:
        """Refuse values of the columns that can't be indexed; `body` is the JSON that they are part of."""
        plain = b"\\" not in body or b"\\u0000" not in body
        if plain and not self._lists and self._are_short(values, key):
            return
        self._check_values(values)
        self._check_sizes(values, key)

    def _are_short(self, values: tuple[Any, ...], key: str) -> bool:
        """Whether one entry of all values would be short enough; a character takes up to 4 bytes."""
        length = 2 * len(key)
        for position in self._texts:
            if (value := values[position]) is not None:
                length += len(value)
        return 4 * length <= self.short

    def _check_values(self, values: tuple[Any, ...]) -> None:
        for column, value in zip(self._columns, values, strict=True):
            if type(value) is str and "\0" in value:
                raise WrongTypeError("indexed text can't contain the NUL character", column.stored)
            if type(value) is list:
                for place, item in enumerate(value):
                    ordered(item, f"{column.stored}[{place}]")

    def _check_sizes(self, values: tuple[Any, ...], key: str) -> None:
        sizes = {c.path: _entry_bytes(v) for c, v in zip(self._columns, values, strict=True)}
        fixed = len(key.encode()) * 2
        for index in self._indexes:
            total = fixed + sum(sizes[f.column.path] for f in index.fields)
            if total > INDEX_ENTRY_BYTES_MAX:
                widest = max(index.fields, key=lambda f: sizes[f.column.path]).column
                raise TooLargeError(
                    f"{index.declared} would take {total:,} bytes; at most {INDEX_ENTRY_BYTES_MAX:,}",
                    widest.stored,
                )


def _entry_bytes(value: Any) -> int:
    """Return the bytes a value takes in an index; of a list, its longest item."""
    if isinstance(value, list):
        return max(map(_entry_bytes, value), default=0)
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else 8
