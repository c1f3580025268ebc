"""Sheets v4 as it travels, as far as it is used here: values."""

from __future__ import annotations

from typing import Literal

import msgspec

Cell = str | int | float | bool | None
Dimension = Literal["ROWS", "COLUMNS"]


class _SheetsType(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class ValueRange(_SheetsType, frozen=True):
    """A range's values, ragged: empty cells at the end of a row and empty rows at the end are left out."""

    range: str = ""
    major_dimension: str = "ROWS"
    values: list[list[Cell]] = []


class BatchValues(_SheetsType, frozen=True):
    """Several ranges, in the order they were asked for."""

    spreadsheet_id: str = ""
    value_ranges: list[ValueRange] = []


class ValueQuery(_SheetsType, frozen=True):
    """How values are given: formatted as the sheet shows them, or as the numbers and texts they are."""

    major_dimension: Dimension = "ROWS"
    value_render_option: Literal["FORMATTED_VALUE", "UNFORMATTED_VALUE", "FORMULA"] = "FORMATTED_VALUE"


class BatchQuery(ValueQuery, frozen=True):
    ranges: tuple[str, ...] = ()


class SheetsErrorDetail(_SheetsType, frozen=True):
    code: int = 0
    message: str = ""
    status: str = ""


class SheetsErrorBody(_SheetsType, frozen=True):
    """A refusal: `status` is the name of its kind, such as RESOURCE_EXHAUSTED."""

    error: SheetsErrorDetail = SheetsErrorDetail()
