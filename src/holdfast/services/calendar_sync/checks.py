"""What `holdfast doctor` asks of this service: does Google take its credentials, and can it call back?"""

from __future__ import annotations

from typing import Final

from holdfast.errors import HoldfastError, RetryLaterError
from holdfast.providers.google_calendar import CALENDAR_URL
from holdfast.service import CheckResult
from holdfast.services.calendar_sync.operations import CalendarSync

NAME: Final = "calendar-sync credentials"
ADDRESS: Final = "calendar-sync address"
_AWAY: Final = "see that this machine reaches Google, then ask again"
_REFUSED: Final = (
    "set service_account to a key that works, and have the domain's administrator delegate the calendar "
    "scope to it"
)


async def credentials(operations: CalendarSync) -> CheckResult:
    """A token for somebody who is mapped, or for the service account itself."""
    if not operations.settings.in_use:
        return CheckResult(NAME, True, "not set up")
    somebody = next(iter(await operations.directory.current()), "")
    try:
        await operations.google.prove(somebody)
    except RetryLaterError as fault:
        return CheckResult(NAME, False, fault.message, _AWAY)
    except HoldfastError as fault:
        return CheckResult(NAME, False, fault.message, _REFUSED)
    return CheckResult(NAME, True, f"Google gives tokens for {somebody or 'the service account'}")


async def address(operations: CalendarSync) -> CheckResult:
    """Google opens channels to addresses that are encrypted, and to no others."""
    if not operations.settings.in_use:
        return CheckResult(ADDRESS, True, "not set up")
    simulated = operations.settings.calendar_url != CALENDAR_URL
    if simulated or operations.address.startswith("https://"):
        return CheckResult(ADDRESS, True, f"notifications come to {operations.address}")
    said = f"Google sends no notifications to {operations.address!r}"
    return CheckResult(ADDRESS, False, said, "set public_url, or its webhook_url, to an https:// address")
