"""The service's own table of holdfast.toml: `[service.renewals]`."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.config import redact
from holdfast.errors import InvalidError
from holdfast.kit import NO_TENANT
from holdfast.services.renewals.ingest.sources import parse_address

# What a cron expression can say: parts of an hour, or of a day.
MINUTES: Final = (1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30, 60, 120, 180, 240, 360, 480, 720, 1_440)


class RenewalsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Without `source` nothing is read by itself.

    Example: `RenewalsSettings(source="postgresql://rop@db/platform?schema=rop", refresh_minutes=5)`
    """

    source: str = ""
    source_tenant: str = NO_TENANT
    refresh_minutes: int = 15

    def __post_init__(self) -> None:
        if self.refresh_minutes not in MINUTES:
            raise ValueError(f"refresh_minutes is one of {', '.join(map(str, MINUTES))}")
        try:
            if self.source:
                parse_address(self.source)
        except InvalidError as fault:
            raise ValueError(fault.message) from None

    @property
    def cron(self) -> str:
        """When the source is read again."""
        if self.refresh_minutes < 60:
            return f"*/{self.refresh_minutes} * * * *"
        hours = self.refresh_minutes // 60
        return "0 0 * * *" if hours == 24 else f"0 */{hours} * * *"

    def __repr__(self) -> str:
        return f"Settings(source={redact(self.source)!r}, refresh_minutes={self.refresh_minutes})"
