"""Google Sheets v4: reading values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, RetryLaterError
from holdfast.net import HttpSession
from holdfast.providers.credentials import TokenSource
from holdfast.providers.google_sheets.types import (
    BatchQuery,
    BatchValues,
    SheetsErrorBody,
    ValueQuery,
    ValueRange,
)
from holdfast.providers.rest import (
    Call,
    CallLimits,
    RestClient,
    RestResponse,
    fault_by_status,
    path_of,
    query_of,
)

SHEETS_URL: Final = "https://sheets.googleapis.com/v4"
SHEETS_READ_SCOPE: Final = "https://www.googleapis.com/auth/spreadsheets.readonly"


def fault_of(act: str, response: RestResponse) -> HoldfastError:
    """Return what a refusal by the Sheets API means for the caller."""
    try:
        detail = msgspec.json.decode(response.body, type=SheetsErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return fault_by_status(act, response)
    text = ": ".join(part for part in (detail.status, detail.message) if part)
    if detail.status == "RESOURCE_EXHAUSTED":
        # The quota is per minute; the response has no Retry-After.
        return RetryLaterError(f"{act} is over a limit: {text}", after_s=0.0)
    return fault_by_status(act, response, text)


class GoogleSheets:
    """Sheets v4, as the user or service account whose tokens these are.

    Example:
        sheets = GoogleSheets(session, tokens, clock=clock)
        rows = (await sheets.values("1AbC", "User Mappings!A2:C")).values
    """

    def __init__(
        self,
        session: HttpSession,
        tokens: TokenSource,
        *,
        clock: Clock,
        base_url: str = SHEETS_URL,
        limits: CallLimits = CallLimits(),
    ) -> None:
        self._rest = RestClient(
            session, base_url, fault_of=fault_of, clock=clock, tokens=tokens, limits=limits
        )

    async def values(
        self, spreadsheet_id: str, a1_range: str, *, query: ValueQuery = ValueQuery()
    ) -> ValueRange:
        path = path_of("spreadsheets", spreadsheet_id, "values", a1_range)
        return await self._rest.fetch(Call("values.get", "GET", path, query_of(query)), ValueRange)

    async def batch_values(
        self, spreadsheet_id: str, a1_ranges: Sequence[str], *, query: ValueQuery = ValueQuery()
    ) -> BatchValues:
        """Return the values of several ranges, read at one moment."""
        batch = BatchQuery(ranges=tuple(a1_ranges), **msgspec.structs.asdict(query))
        path = path_of("spreadsheets", spreadsheet_id, "values:batchGet")
        return await self._rest.fetch(Call("values.batchGet", "GET", path, query_of(batch)), BatchValues)
