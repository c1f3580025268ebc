"""The sender's port: one request, one response or one named failure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

FailureReason = Literal[
    "timeout", "connect", "reset", "tls", "too_large", "refused_address", "bad_request", "bad_response",
    "unsigned",
]  # fmt: skip


class OutgoingRequest(msgspec.Struct, frozen=True):
    """A request whose bytes are final; the sender adds only what HTTP itself needs."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    timeout_s: float
    response_bytes_max: int


class ReceiverResponse(msgspec.Struct, frozen=True):
    """The receiver's response; header names in lower case, `excerpt` the first KB of the body."""

    status: int
    headers: Mapping[str, str]
    excerpt: bytes
    latency_s: float


class SendFailure(Exception):
    """No usable response; `reason` is one stable word."""

    def __init__(self, reason: FailureReason, message: str) -> None:
        super().__init__(message)
        self.reason: FailureReason = reason
        self.message = message


class Sender(Protocol):
    """Sends requests. Safe to call from many tasks at once; never follows redirects."""

    async def send(self, request: OutgoingRequest) -> ReceiverResponse:
        """Return the response, or raise `SendFailure`; takes no longer than `request.timeout_s`."""

    async def close(self) -> None: ...
