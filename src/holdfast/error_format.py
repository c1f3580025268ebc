"""Formats of errors in HTTP responses: the platform's, a flat one, or what a service declares.

flat = ErrorFormat(response=FlatErrorResponse, statuses={LimitReachedError: 403})
service = Service(name="greetings", errors=flat, ...)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, Self

import msgspec

from holdfast.errors import HoldfastError


class ErrorBody(msgspec.Struct, frozen=True, rename="camel"):
    """An error as a response tells it, in whichever format."""

    code: str
    message: str
    details: Any
    request_id: str


class ErrorShape(Protocol):
    """A struct that is encoded as the response."""

    @classmethod
    def of(cls, body: ErrorBody) -> Self: ...


class ErrorResponse(msgspec.Struct, frozen=True):
    """`{"error": {"code", "message", "details", "requestId"}}`, the platform's own."""

    error: ErrorBody

    @classmethod
    def of(cls, body: ErrorBody) -> Self:
        return cls(body)


class FlatErrorResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """`{"error", "message", "details"}`, details only where there are any."""

    error: str
    message: str
    details: Any = None

    @classmethod
    def of(cls, body: ErrorBody) -> Self:
        return cls(body.code, body.message, body.details)


class ErrorFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The errors of a service: the shape of the response, and statuses other than the platform's.

    Example: `ErrorFormat(response=FlatErrorResponse, statuses={LimitReachedError: 403})`
    """

    response: type[ErrorShape] = ErrorResponse
    statuses: Mapping[type[HoldfastError], int] = {}


PLATFORM_FORMAT: Final = ErrorFormat()
