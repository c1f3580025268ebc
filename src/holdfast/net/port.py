"""The sender's port: one request, one response or one named failure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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


SendResult = ReceiverResponse | SendFailure
OnResult = Callable[[SendResult], None]


class Exchange(Protocol):
    """A request that was written, whose response is awaited."""

    def abandon(self, on_result: OnResult) -> None:
        """Stop waiting for the result of this call; nothing happens where it has been given already."""


class Sender(Protocol):
    """Sends requests. Safe to call from many tasks at once; never follows redirects."""

    async def send(self, request: OutgoingRequest) -> ReceiverResponse:
        """Return the response, or raise `SendFailure`; takes no longer than `request.timeout_s`."""

    def start(self, request: OutgoingRequest, on_result: OnResult) -> Exchange | None:
        """Write the request if that needs no waiting, without a task; None, and nothing written, if it does.

        `on_result` is called once, later, with what `send` would return or raise. `SendFailure` is raised
        for a request that can't be sent at all.
        """

    async def close(self) -> None: ...
