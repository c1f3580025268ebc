"""Google Sheets v4: values."""

from holdfast.providers.google_sheets.client import SHEETS_READ_SCOPE, SHEETS_URL, GoogleSheets
from holdfast.providers.google_sheets.types import BatchValues, Cell, ValueQuery, ValueRange

__all__ = [
    "SHEETS_READ_SCOPE",
    "SHEETS_URL",
    "BatchValues",
    "Cell",
    "GoogleSheets",
    "ValueQuery",
    "ValueRange",
]
