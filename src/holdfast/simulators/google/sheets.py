"""Spreadsheets: values by A1 ranges."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from holdfast.simulators.google.refusals import Refusal

Cell = str | int | float | bool | None
ROWS: Final = 1_000
COLUMNS: Final = 26
_SHEET: Final = re.compile(r"(?:'((?:[^']|'')+)'|([^'!]+))(?:!(.*))?", re.DOTALL)
_CELL: Final = re.compile(r"([A-Za-z]{1,3})?([1-9]\d{0,6})?")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Spreadsheet(msgspec.Struct):
    """Sheets by title; `readers` None lets everybody read."""

    sheets: dict[str, list[list[Cell]]]
    readers: list[str] | None = None


class Area(msgspec.Struct, frozen=True, kw_only=True):
    """A rectangle of a sheet, zero-based, ends excluded."""

    title: str
    top: int = 0
    left: int = 0
    bottom: int = ROWS
    right: int = COLUMNS

    def a1(self) -> str:
        title = self.title if _PLAIN.fullmatch(self.title) else "'" + self.title.replace("'", "''") + "'"
        first, last = f"{_letters(self.left)}{self.top + 1}", f"{_letters(self.right - 1)}{self.bottom}"
        return f"{title}!{first}" if first == last else f"{title}!{first}:{last}"


def values(
    spreadsheet: Spreadsheet, text: str, *, dimension: str = "ROWS", render: str = ""
) -> dict[str, Any]:
    """A range's values, without trailing empty cells and rows."""
    if dimension not in ("ROWS", "COLUMNS"):
        raise Refusal(400, "invalid", f"Invalid value at 'major_dimension': {dimension}")
    area = area_of(spreadsheet, text)
    rows = [row[area.left : area.right] for row in spreadsheet.sheets[area.title][area.top : area.bottom]]
    if dimension == "COLUMNS":
        width = max((len(row) for row in rows), default=0)
        rows = [[row[column] if column < len(row) else None for row in rows] for column in range(width)]
    formatted = _trim([[_format(cell, render) for cell in _trim(row)] for row in rows])
    response = {"range": area.a1(), "majorDimension": dimension}
    return response | ({"values": formatted} if formatted else {})


def area_of(spreadsheet: Spreadsheet, text: str) -> Area:
    """Parse A1 notation: `Sheet`, `A1:B2`, `'My sheet'!A2:C`, `Sheet!A:C`, `Sheet!2:5`."""
    match = _SHEET.fullmatch(text)
    quoted, plain, cells = match.groups() if match else (None, None, None)
    title = quoted.replace("''", "'") if quoted is not None else plain
    if title in spreadsheet.sheets:
        return _area(title, cells, text)
    if match and quoted is None and cells is None and spreadsheet.sheets:
        return _area(next(iter(spreadsheet.sheets)), text, text)
    raise _parse_error(text)


def _area(title: str, cells: str | None, text: str) -> Area:
    if cells is None:
        return Area(title=title)
    first, colon, last = cells.partition(":")
    begin, end = _CELL.fullmatch(first), _CELL.fullmatch(last if colon else first)
    if not (begin and end and any(begin.groups()) and any(end.groups())):
        raise _parse_error(text)
    area = Area(
        title=title,
        top=int(begin[2] or 1) - 1,
        left=_column(begin[1] or "A"),
        bottom=min(int(end[2] or ROWS), ROWS),
        right=min(_column(end[1]) + 1 if end[1] else COLUMNS, COLUMNS),
    )
    if area.top >= area.bottom or area.left >= area.right:
        message = f"Range ({text}) exceeds grid limits. Max rows: {ROWS}, max columns: {COLUMNS}"
        raise Refusal(400, "invalid", message)
    return area


def _parse_error(text: str) -> Refusal:
    return Refusal(400, "invalid", f"Unable to parse range: {text}")


def _column(letters: str) -> int:
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    return number - 1


def _letters(column: int) -> str:
    text = ""
    while column >= 0:
        text, column = chr(ord("A") + column % 26) + text, column // 26 - 1
    return text


def _trim(cells: list[Any]) -> list[Any]:
    end = len(cells)
    while end and cells[end - 1] in (None, "", []):
        end -= 1
    return cells[:end]


def _format(cell: Cell, render: str) -> Cell:
    if cell is None:
        return ""
    if render in ("UNFORMATTED_VALUE", "FORMULA"):
        return cell
    return str(cell).upper() if isinstance(cell, bool) else str(cell)
