"""Google's errors as ours, by what the caller must do next."""

from __future__ import annotations

import re
from typing import Final

from google.api_core import exceptions

from holdfast.errors import (
    ConfigError,
    HoldfastError,
    InvalidError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TooLargeError,
)

ALREADY_EXISTS: Final = 6
FAILED_PRECONDITION: Final = 9
ABORTED: Final = 10
CONFLICT_CODES: Final = (ALREADY_EXISTS, FAILED_PRECONDITION, ABORTED)
OK: Final = 0
UNKNOWN: Final = 2

# A commit that failed like this was certainly not made: its precondition did not hold.
CONFLICTS: Final = (exceptions.AlreadyExists, exceptions.FailedPrecondition, exceptions.Aborted)
_TRANSIENT: Final = (
    exceptions.ServiceUnavailable,
    exceptions.DeadlineExceeded,
    exceptions.InternalServerError,
    exceptions.Unknown,
    exceptions.Aborted,
    exceptions.Cancelled,
)
_REFUSED: Final = (exceptions.PermissionDenied, exceptions.Unauthenticated, exceptions.NotFound)
_TOO_LARGE: Final = re.compile(r"(?i)longer than|larger than|too large|too big|exceeds|size")
_NEVER_SENT: Final = re.compile(r"(?i)failed to connect|connection refused|dns resolution|name resolution")


def is_transient(fault: exceptions.GoogleAPICallError) -> bool:
    """Whether the same call may succeed in a moment."""
    return isinstance(fault, _TRANSIENT)


def may_be_applied(fault: exceptions.GoogleAPICallError) -> bool:
    """Whether a write that failed like this may have been applied nevertheless."""
    return (
        is_transient(fault)
        and not isinstance(fault, CONFLICTS)
        and not _NEVER_SENT.search(fault.message or "")
    )


def translate(fault: exceptions.GoogleAPICallError) -> HoldfastError:
    text = fault.message or type(fault).__name__
    if isinstance(fault, (exceptions.InvalidArgument, exceptions.ResourceExhausted)):
        if _TOO_LARGE.search(text):
            return TooLargeError(f"the document or request exceeds a Firestore limit: {text}")
        if isinstance(fault, exceptions.InvalidArgument):
            return InvalidError(f"Firestore rejected the request: {text}")
        return StoreUnavailableError(f"Firestore's quota is exhausted; retry later: {text}", after_s=10.0)
    if isinstance(fault, exceptions.FailedPrecondition):
        return ConfigError(f"an index is missing; deploy the exported firestore.indexes.json: {text}")
    if isinstance(fault, _REFUSED):
        return ConfigError(f"Firestore denied the request; check the project and the credentials: {text}")
    return StoreUnavailableError(f"Firestore can't be reached; retry later: {text}")


def from_status(code: int, text: str) -> exceptions.GoogleAPICallError:
    """Return the error of a status inside a response."""
    fault: exceptions.GoogleAPICallError = exceptions.from_grpc_status(code, text)  # type: ignore[no-untyped-call]
    return fault


def unknown_outcome(text: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"the connection broke during a commit; read before you repeat it: {text}")
