"""Responses to webhooks as bytes."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from holdfast.http.ingest import RawHeaders, WebhookResponse


class ResponseRenderer:
    """Renders responses with the headers that a server has at the moment, which are written once a second."""

    def __init__(self, state: Any) -> None:
        self.state = state  # the server's, with its headers
        self._headers: RawHeaders | None = None
        self._lines = b""

    def render(self, response: WebhookResponse, *, keep_alive: bool) -> bytes:
        usual = self.state.default_headers
        if usual is not self._headers:
            # The server makes a new list when the date changes.
            self._headers, self._lines = usual, _lines(usual)
        lines = self._lines + _lines(response.headers) if response.headers else self._lines
        if not keep_alive:
            lines += b"connection: close\r\n"
        return b"%bcontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n%b" % (
            STATUS_LINE[response.status], len(response.body), lines, response.body
        )  # fmt: skip


def _lines(headers: RawHeaders) -> bytes:
    return b"".join([b"%b: %b\r\n" % pair for pair in headers])
