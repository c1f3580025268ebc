"""Sheets v4 as it travels, as far as it is used here: values."""

from __future__ import annotations

from typing import Literal

import msgspec

Cell = str | int | float | bool | None
Dimension = Literal["ROWS", "COLUMNS"]


class _Wire(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    pass


class ValueRange(_Wire, frozen=True):
    """A range's values, ragged: empty cells at the end of a row and empty rows at the end are left out."""

    range: str = ""
    major_dimension: str = "ROWS"
    values: list[list[Cell]] = []


class BatchValues(_Wire, frozen=True):
    """Several ranges, in the order they were asked for."""

    spreadsheet_id: str = ""
    value_ranges: list[ValueRange] = []


class ValueQuery(_Wire, frozen=True):
    """How values are given: formatted as the sheet shows them, or as the numbers and texts they are."""

    major_dimension: Dimension = "ROWS"
    value_render_option: Literal["FORMATTED_VALUE", "UNFORMATTED_VALUE", "FORMULA"] = "FORMATTED_VALUE"


class BatchQuery(ValueQuery, frozen=True):
    ranges: tuple[str, ...] = ()


class FaultDetail(_Wire, frozen=True):
    code: int = 0
    message: str = ""
    status: str = ""


class Fault(_Wire, frozen=True):
    """A refusal: `status` is the name of its kind, such as RESOURCE_EXHAUSTED."""

    error: FaultDetail = FaultDetail()
