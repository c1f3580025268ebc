"""Slow and swollen requests: each must arrive whole in time, and what is not its body must stay small."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.error_format import ErrorBody
from holdfast.http.error_responses import encode_error, refusal
from holdfast.http.response_transport import ResponseTransport
from holdfast.ids import ulid

HEAD_BYTES_MAX: Final = 65_536
# A chunk's size in hexadecimal and its two line ends.
CHUNK_FRAMING_BYTES: Final = 12
_REASONS: Final = {408: b"Request Timeout", 431: b"Request Header Fields Too Large"}


class SlowClientProtocol(HttpToolsProtocol):
    """Notes since when a request is read or the connection idle; the server's tick drops what takes too long.

    Noting costs an assignment a request, where a timer each would cost far more. One byte budget covers the
    head, chunk extensions and trailers: all that was received less the body and the framing of chunks.
    Trailers are discarded, so that none of them is ever taken for a header.
    """

    reading_since_s: float | None = None
    idle_since_s: float | None = None
    _overhead_bytes = 0
    _first_bytes = 0
    _in_head = True
    _complete = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.reading_since_s = self.loop.time()

    def on_message_begin(self) -> None:
        self.url, self.headers, self.expect_100_continue = b"", [], False
        self.reading_since_s, self._complete = self.loop.time(), False
        self._in_head, self._overhead_bytes, self._first_bytes = True, self._first_bytes, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
            self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_head, before = False, self.cycle
        self._make_scope()
        super().on_headers_complete()
        # A response to HEAD has no body that its head could wait for.
        if self.cycle is not before and self.scope["method"] != "HEAD":
            self.cycle.transport = ResponseTransport(self.cycle.transport)

    def _make_scope(self) -> None:
        """Make what only ASGI needs, with the head that has been read meanwhile."""
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers

    def on_chunk_header(self) -> None:
        self._overhead_bytes -= CHUNK_FRAMING_BYTES

    def on_body(self, body: bytes) -> None:
        self._overhead_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self.reading_since_s, self._complete = None, True

    def data_received(self, data: bytes) -> None:
        self.idle_since_s = None
        # Of what is pipelined, only the first message begins where these bytes do.
        self._first_bytes = len(data) if self._complete else 0
        self._overhead_bytes += len(data)
        super().data_received(data)
        # Short framing must not be saved up for a long extension.
        self._overhead_bytes = max(0, self._overhead_bytes)
        if self._overhead_bytes > HEAD_BYTES_MAX and self.reading_since_s is not None:
            text = f"the head, chunk extensions and trailers take at most {HEAD_BYTES_MAX:,} bytes together"
            self.drop(431, refusal("too_large", text, ulid()))

    def on_response_complete(self) -> None:
        """Go on with what is pipelined, or note since when the connection is idle."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.idle_since_s = self.loop.time()

    def drop_if_slow(self, read_s: float) -> None:
        """Give up on a request that has been coming in, and on a connection that has been idle, too long."""
        now_s = self.loop.time()
        if self.reading_since_s is not None and now_s - self.reading_since_s > read_s:
            self.drop(408, refusal("timed_out", f"the request did not arrive within {read_s:g} s", ulid()))
        elif self.idle_since_s is not None and now_s - self.idle_since_s > self.timeout_keep_alive:
            self.transport.close()

    def drop(self, status: int, body: ErrorBody) -> None:
        if self.transport.is_closing():
            return
        self.reading_since_s = None
        # Where a part of the request was let through, the application has the word.
        if self._in_head:
            text = encode_error(body)
            self.transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n%s" % (status, _REASONS[status], len(text), text)
            )
        self.transport.close()


def drop_slow(connections: set[Any], read_s: float) -> None:
    """Look at every connection once."""
    for connection in list(connections):
        if isinstance(connection, SlowClientProtocol):
            connection.drop_if_slow(read_s)
