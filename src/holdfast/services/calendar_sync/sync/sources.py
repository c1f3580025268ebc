"""Sources of mappings: a Google Sheet, a CSV file or a TOML file."""

from __future__ import annotations

import csv
import io
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from holdfast.errors import ConfigError, InvalidError
from holdfast.providers.google_sheets import GoogleSheets
from holdfast.services.calendar_sync.domain.mappings import MappingRow
from holdfast.services.calendar_sync.settings import SHEET_RANGE

FILE_BYTES_MAX: Final = 16 * 1024 * 1024
_FIRST_ROW: Final = re.compile(r"(?:^|!)\$?[A-Za-z]{1,3}\$?([0-9]{1,7})")
_SEPARATOR: Final = re.compile(r"[,;\n]")


class MappingSource(Protocol):
    """Returns all rows; raises a HoldfastError that says what to do."""

    async def rows(self) -> list[MappingRow]: ...


class SheetSource:
    """Rows of a Google Sheet: primary, comma-separated secondaries, status."""

    def __init__(
        self, sheets: Callable[[], GoogleSheets], spreadsheet_id: str, *, a1_range: str = SHEET_RANGE
    ) -> None:
        self._sheets, self._id, self._range = sheets, spreadsheet_id, a1_range

    async def rows(self) -> list[MappingRow]:
        found = (await self._sheets().values(self._id, self._range)).values
        first = _FIRST_ROW.search(self._range)
        return rows_of_cells(found, start=int(first[1]) if first else 1)


class CsvSource:
    """Rows of a CSV file, with or without a line of headings."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def rows(self) -> list[MappingRow]:
        text = _read(self._path).decode("utf-8-sig")
        try:
            lines = list(csv.reader(io.StringIO(text), strict=True))
        except csv.Error as fault:
            raise InvalidError(f"{self._path} is no CSV: {fault}") from None
        headed = bool(lines) and bool(lines[0]) and "@" not in lines[0][0]
        return rows_of_cells(lines[headed:], start=1 + headed)


class TomlSource:
    """Tables of a TOML file: `[[mapping]]` with primary, secondaries and, if wanted, status."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def rows(self) -> list[MappingRow]:
        try:
            tables = tomllib.loads(_read(self._path).decode("utf-8")).get("mapping", [])
        except tomllib.TOMLDecodeError as fault:
            raise InvalidError(f"{self._path} is no TOML: {fault}") from None
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise InvalidError(f"{self._path}: write each mapping under [[mapping]]")
        return [_table_row(number, table) for number, table in enumerate(tables, start=1)]


def file_source(path: Path) -> MappingSource:
    """Return the source for a file, by its suffix."""
    kinds: dict[str, type[CsvSource] | type[TomlSource]] = {".csv": CsvSource, ".toml": TomlSource}
    kind = kinds.get(path.suffix.lower())
    if kind is None:
        raise ConfigError(f"mappings come from a .csv or .toml file or from sheet:ID, not from {path.name!r}")
    return kind(path)


def rows_of_cells(lines: Iterable[Sequence[Any]], *, start: int) -> list[MappingRow]:
    """Return lines of cells as numbered rows; empty ones are skipped, and counted."""
    rows = []
    for number, cells in enumerate(lines, start=start):
        texts = [str(cell if cell is not None else "").strip() for cell in [*cells[:3], "", "", ""][:3]]
        if any(texts):
            rows.append(MappingRow(number, texts[0], _SEPARATOR.split(texts[1]), texts[2]))
    return rows


def _table_row(number: int, table: dict[str, Any]) -> MappingRow:
    secondaries = table.get("secondaries", [])
    listed = secondaries if isinstance(secondaries, list) else [secondaries]
    texts = [str(one) for one in listed]
    return MappingRow(number, str(table.get("primary", "")), texts, str(table.get("status", "")))


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise InvalidError(f"{path} has more than {FILE_BYTES_MAX:,} bytes")
        content = path.read_bytes()
        content.decode("utf-8")
    except OSError as fault:
        raise InvalidError(f"{path} can't be read: {fault.strerror}; check its path and rights") from None
    except UnicodeDecodeError:
        raise InvalidError(f"{path} is not UTF-8; save it as UTF-8") from None
    return content
