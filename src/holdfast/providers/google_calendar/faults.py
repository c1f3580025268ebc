"""Calendar's errors, by the reason in the body: one status stands for several."""

from __future__ import annotations

from typing import Final

import msgspec

from holdfast.errors import ForbiddenError, FullSyncRequiredError, GoneError, HoldfastError, RetryLaterError
from holdfast.providers.google_calendar.types import CalendarErrorBody, CalendarErrorReason
from holdfast.providers.rest import RestResponse, fault_by_status

# A daily quota resets at midnight Pacific time; a retry each hour finds that soon enough.
_QUOTA_S: Final = {
    "rateLimitExceeded": 0.0,
    "userRateLimitExceeded": 0.0,
    "quotaExceeded": 3_600.0,
    "dailyLimitExceeded": 3_600.0,
}
_GONE: Final[dict[str, type[GoneError]]] = {
    "fullSyncRequired": FullSyncRequiredError,
    "updatedMinTooLongAgo": FullSyncRequiredError,
}
_REMEDIES: Final = {
    "insufficientPermissions": "the token lacks the calendar scope",
    "accessNotConfigured": "enable the Calendar API in the project",
    "forbiddenForServiceAccounts": "attendees need domain-wide delegation",
    "forbiddenForNonOrganizer": "only the organizer may change this",
}


def fault_of(act: str, response: RestResponse) -> HoldfastError:
    """Return what a refusal by the Calendar API means for the caller."""
    reason = _reason(response)
    if response.status in (403, 429) and reason.reason in _QUOTA_S:
        return RetryLaterError(f"{act} is over a limit: {reason.reason}", after_s=_QUOTA_S[reason.reason])
    text = ": ".join(part for part in (reason.reason, reason.message) if part)
    if response.status == 410 and reason.reason in _GONE:
        return _GONE[reason.reason](f"{act} was responseed 410: {text}")
    if response.status == 403 and reason.reason in _REMEDIES:
        return ForbiddenError(f"{act} was refused: {text}; {_REMEDIES[reason.reason]}")
    return fault_by_status(act, response, text)


def _reason(response: RestResponse) -> CalendarErrorReason:
    try:
        detail = msgspec.json.decode(response.body, type=CalendarErrorBody).error
    except (msgspec.DecodeError, UnicodeDecodeError):
        return CalendarErrorReason()
    return detail.errors[0] if detail.errors else CalendarErrorReason(message=detail.message)
