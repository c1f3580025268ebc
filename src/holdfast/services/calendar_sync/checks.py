"""Checks of `holdfast doctor`: does Google take the credentials, and can it call back?"""

from __future__ import annotations

from typing import Final

from holdfast.errors import HoldfastError, RetryLaterError
from holdfast.providers.google_calendar import CALENDAR_URL
from holdfast.service import CheckResult
from holdfast.services.calendar_sync.sync.engine import SyncEngine

CREDENTIALS: Final = "calendar-sync credentials"
ADDRESS: Final = "calendar-sync address"
_UNREACHABLE: Final = "see that this machine reaches Google, then ask again"
_REFUSED: Final = (
    "set service_account to a key that works, and have the domain's administrator delegate the calendar "
    "scope to it"
)


async def check_credentials(engine: SyncEngine) -> CheckResult:
    """Ask for a token for somebody who is mapped, or for the service account itself."""
    if not engine.settings.in_use:
        return CheckResult(CREDENTIALS, True, "not set up")
    primary = next(iter(await engine.mappings.current()), "")
    try:
        await engine.google.check_access(primary)
    except RetryLaterError as fault:
        return CheckResult(CREDENTIALS, False, fault.message, _UNREACHABLE)
    except HoldfastError as fault:
        return CheckResult(CREDENTIALS, False, fault.message, _REFUSED)
    return CheckResult(CREDENTIALS, True, f"Google gives tokens for {primary or 'the service account'}")


async def check_address(engine: SyncEngine) -> CheckResult:
    """Check that the webhook's URL is one that Google sends to: it insists on https."""
    if not engine.settings.in_use:
        return CheckResult(ADDRESS, True, "not set up")
    simulated = engine.settings.calendar_url != CALENDAR_URL
    if simulated or engine.address.startswith("https://"):
        return CheckResult(ADDRESS, True, f"notifications come to {engine.address}")
    message = f"Google sends no notifications to {engine.address!r}"
    return CheckResult(ADDRESS, False, message, "set public_url, or its webhook_url, to an https:// address")
