"""Sheets v4's resources that are used here: values."""

from __future__ import annotations

from typing import Literal

import msgspec

Cell = str | int | float | bool | None
Dimension = Literal["ROWS", "COLUMNS"]


class _SheetsType(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class ValueRange(_SheetsType, frozen=True):
    """A range's values, ragged: trailing empty cells and rows are left out."""

    range: str = ""
    major_dimension: str = "ROWS"
    values: list[list[Cell]] = []


class BatchValues(_SheetsType, frozen=True):
    """Several ranges, in the order of the request."""

    spreadsheet_id: str = ""
    value_ranges: list[ValueRange] = []


class ValueQuery(_SheetsType, frozen=True):
    """How values are rendered: formatted as the sheet shows them, or raw."""

    major_dimension: Dimension = "ROWS"
    value_render_option: Literal["FORMATTED_VALUE", "UNFORMATTED_VALUE", "FORMULA"] = "FORMATTED_VALUE"


class BatchQuery(ValueQuery, frozen=True):
    ranges: tuple[str, ...] = ()


class SheetsErrorDetail(_SheetsType, frozen=True):
    code: int = 0
    message: str = ""
    status: str = ""


class SheetsErrorBody(_SheetsType, frozen=True):
    """An error; `status` is its kind, such as RESOURCE_EXHAUSTED."""

    error: SheetsErrorDetail = SheetsErrorDetail()
