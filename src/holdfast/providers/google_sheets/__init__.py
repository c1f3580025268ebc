"""Google Sheets v4: values."""

from holdfast.providers.google_sheets.client import SHEETS_READ_SCOPE, SHEETS_URL, GoogleSheets
from holdfast.providers.google_sheets.types import Cell, ValueQuery, ValueRange

__all__ = ["SHEETS_READ_SCOPE", "SHEETS_URL", "Cell", "GoogleSheets", "ValueQuery", "ValueRange"]
