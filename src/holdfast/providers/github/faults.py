"""GitHub's refusals: limits by their headers, conflicts by their message."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from holdfast.errors import (
    AlreadyExistsError,
    GoneError,
    HoldfastError,
    RetryLaterError,
    VersionConflictError,
)
from holdfast.providers.github.types import GithubRefusal
from holdfast.providers.rest import RestResponse, fault_by_status

# GitHub asks for at least a minute where a secondary limit does not say how long.
SECONDARY_S: Final = 60.0


def fault_of(act: str, response: RestResponse) -> HoldfastError:
    """Return what a refusal by GitHub means for the caller."""
    text = _text(response)
    if response.status in (403, 429):
        wait_s = _limit_s(response, text)
        if wait_s is not None:
            return RetryLaterError(f"{act} is over a rate limit: {text}", after_s=wait_s)
    if response.status in (301, 307, 308):
        return GoneError(f"{act} was refused: the repository was renamed or moved; read it by its new name")
    if response.status == 409 or (response.status == 422 and "fast forward" in text):
        return VersionConflictError(f"{act} was refused: {text}; read it again")
    if response.status == 422 and "already exists" in text:
        return AlreadyExistsError(f"{act} was refused: {text}")
    return fault_by_status(act, response, text)


def _text(response: RestResponse) -> str:
    try:
        refusal = msgspec.json.decode(response.body, type=GithubRefusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    errors = [bytes(one).decode() for one in refusal.errors]
    return " ".join([refusal.message, *errors])


def _limit_s(response: RestResponse, text: str) -> float | None:
    """Return the seconds that a rate limit asks for; None where the refusal is about something else."""
    headers = response.headers
    if headers.get("x-ratelimit-remaining") == "0":
        return _reset_s(headers.get("x-ratelimit-reset", ""), headers.get("date", ""))
    if response.status == 429 or "secondary rate limit" in text or "retry-after" in headers:
        return 0.0 if "retry-after" in headers else SECONDARY_S
    return None


def _reset_s(reset: str, date: str) -> float:
    """Return the time until the limit resets, both by GitHub's clock."""
    try:
        return max(1.0, int(reset) - parsedate_to_datetime(date).timestamp())
    except (ValueError, TypeError):
        return SECONDARY_S
