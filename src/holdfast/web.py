"""Shared by API and console: the status of each error, where people sign in, safe redirects."""

from __future__ import annotations

from typing import Final

from holdfast import errors
from holdfast.errors import HoldfastError

SIGN_IN: Final = "/sign-in"
# The first class that fits decides, so narrow ones stand before wide ones.
_STATUSES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (
    (errors.TooLargeError, 413),
    (errors.BadCursorError, 400),
    (errors.InvalidError, 422),
    (errors.UnverifiedError, 401),
    (errors.ForbiddenError, 403),
    (errors.NotFoundError, 404),
    (errors.ConflictError, 409),
    (errors.JobFailedError, 409),
    (errors.LeaseLostError, 409),
    (errors.LimitReachedError, 429),
    (errors.TooManyRequestsError, 429),
    (errors.RetryLaterError, 503),
)


def status_of(fault: HoldfastError) -> int:
    """The status of an error; 500 for those that are nobody's business outside."""
    return next((status for kind, status in _STATUSES if isinstance(fault, kind)), 500)


def next_of(path: str, query: str = "") -> str:
    """Where to go on after signing in: a path of this site, never another's.

    Example: `next_of("//evil.example")` gives `/`
    """
    whole = f"{path}?{query}" if query else path
    # Browsers read a backslash as a slash and drop control characters, so both could hide a host.
    foreign = whole.startswith("//") or "\\" in whole or any(ord(char) < 33 for char in whole)
    return "/" if foreign or not whole.startswith("/") else whole
