"""One webhook that is taken in without ASGI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from holdfast.http.ingest import Ingest, RawHeaders


class _NoEvent:
    """Nobody waits for a part of a body that is taken whole."""

    def set(self) -> None: ...


_NO_EVENT: Final = _NoEvent()


class WebhookCycle:
    """One request and its response, with what the server beneath asks of its own cycles."""

    __slots__ = ("began_s", "body", "disconnected", "headers", "ingest", "keep_alive", "message_event", "raw",
                 "response_complete")  # fmt: skip

    def __init__(
        self, ingest: Ingest, raw: RawHeaders, headers: Mapping[str, str], *, keep_alive: bool
    ) -> None:
        self.ingest, self.raw, self.headers, self.keep_alive = ingest, raw, headers, keep_alive
        self.body, self.began_s = b"", 0.0
        self.disconnected = self.response_complete = False
        self.message_event = _NO_EVENT
