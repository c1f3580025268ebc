"""Errors as HTTP answers: one shape, one table."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from holdfast import errors
from holdfast.errors import HoldfastError

# The first class that fits decides, so narrow ones stand before wide ones.
_STATUSES: Final[tuple[tuple[type[HoldfastError], int], ...]] = (
    (errors.TooLargeError, 413),
    (errors.BadCursorError, 400),
    (errors.InvalidError, 422),
    (errors.UnverifiedError, 401),
    (errors.ForbiddenError, 403),
    (errors.NotFoundError, 404),
    (errors.ConflictError, 409),
    (errors.LeaseLostError, 409),
    (errors.LimitReachedError, 429),
    (errors.RetryLaterError, 503),
)


class Fault(msgspec.Struct, frozen=True, rename="camel"):
    code: str
    message: str
    details: Any
    request_id: str


class FaultAnswer(msgspec.Struct, frozen=True):
    """`{"error": {"code", "message", "details", "requestId"}}`"""

    error: Fault


def status_of(fault: HoldfastError) -> int:
    """The status of an error; 500 for those that are nobody's business outside."""
    return next((status for kind, status in _STATUSES if isinstance(fault, kind)), 500)


def answer_to(fault: HoldfastError, request_id: str) -> FaultAnswer:
    details = {"path": fault.path} if fault.path else None
    return FaultAnswer(Fault(fault.code, fault.message, details, request_id))


def retry_after(fault: HoldfastError) -> str | None:
    """Whole seconds for `Retry-After`, at least one."""
    if not isinstance(fault, errors.RetryLaterError):
        return None
    return str(max(1, round(fault.after_s)))
