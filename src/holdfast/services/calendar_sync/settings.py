"""Settings: the table `[service.calendar_sync]` of holdfast.toml."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from holdfast.providers.google_calendar import CALENDAR_URL
from holdfast.providers.google_sheets import SHEETS_URL

SHEET: Final = "sheet:"
SHEET_RANGE: Final = "User Mappings!A2:C"
Seconds = Annotated[float, Meta(gt=0)]


class CalendarSyncSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `service_account` and `mappings` the service is not in use.

    Example: `CalendarSyncSettings(service_account="key.json", mappings="sheet:1AbC")`
    """

    service_account: str = ""
    mappings: str = ""
    sheet_range: str = SHEET_RANGE
    sheet_reader: str = ""
    webhook_url: str = ""
    renew_before_s: Seconds = 86_400.0
    safety_poll_s: Seconds = 21_600.0
    sync_gap_s: Annotated[float, Meta(ge=0)] = 1.0
    sync_lease_s: Seconds = 60.0
    look_back_s: Annotated[float, Meta(ge=0)] = 86_400.0
    keep_stopped_s: Annotated[float, Meta(ge=0)] = 0.0
    watch_concurrency: Annotated[int, Meta(ge=1, le=1_000)] = 16
    sync_concurrency: Annotated[int, Meta(ge=1, le=1_000)] = 8
    calendar_url: str = CALENDAR_URL
    sheets_url: str = SHEETS_URL

    @property
    def in_use(self) -> bool:
        return bool(self.service_account and self.mappings)

    @property
    def spreadsheet_id(self) -> str:
        """The sheet's id; empty when mappings come from a file."""
        return self.mappings.removeprefix(SHEET) if self.mappings.startswith(SHEET) else ""
