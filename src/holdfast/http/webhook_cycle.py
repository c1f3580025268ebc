"""One webhook that is taken in without ASGI."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.http.ingest import Ingest, RawHeaders


class _NoEvent:
    """Nobody waits for a part of a body that is taken whole."""

    def set(self) -> None: ...


_NO_EVENT: Final = _NoEvent()


class WebhookCycle(msgspec.Struct, eq=False):
    """One request and its response, with what the server beneath asks of its own cycles."""

    ingest: Ingest
    raw: RawHeaders | None  # None where no header was there twice, so that `headers` has all of them
    headers: Mapping[str, str]
    body: bytes = b""
    began_s: float = 0.0
    keep_alive: bool = True
    disconnected: bool = False
    response_complete: bool = False
    message_event: Any = _NO_EVENT

    @property
    def raw_headers(self) -> RawHeaders:
        if self.raw is not None:
            return self.raw
        return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
