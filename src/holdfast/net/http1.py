"""One HTTP/1.1 connection: writes a request, reads a response up to its limits, is reused or dropped."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Callable
from typing import Final, NamedTuple, cast

import httptools

from holdfast.net.port import OnResult, OutgoingRequest, ReceiverResponse, SendFailure

EXCERPT_BYTES_MAX: Final = 1_024
HEAD_BYTES_MAX: Final = 16_384
_WRITE_JOINED_BYTES_MAX: Final = 65_536
_REPEATED_BYTES_MAX: Final = 2_048  # each connection has its last response
# The event loop notices a closed connection at its next iteration; one that was idle for many is checked by a
# read, because receivers close idle connections, not those in use.
_PEEK_AFTER_S: Final = 0.1
_PEEK: Final = int(socket.MSG_PEEK | socket.MSG_DONTWAIT)
_KEEP_ALIVE_S: Final = re.compile(r"\btimeout\s*=\s*(\d{1,6})\b", re.IGNORECASE)
# How long before the receiver's stated end a connection is dropped: its time began when it answered.
_KEEP_ALIVE_MARGIN_S: Final = 1.0


class _RepeatedResponse(NamedTuple):
    """A response that came whole and at once: the same bytes mean the same the next time."""

    data: bytes
    status: int
    headers: dict[str, str]
    excerpt: bytes
    body_bytes: int


class Http1Connection(asyncio.Protocol):
    """HTTP/1.1 over one socket, one request at a time.

    One timer per connection serves the time limit of a request and the idle time between requests; it is
    moved only when it would fire too late, so a busy connection never touches it.
    """

    def __init__(
        self,
        sock: socket.socket,
        *,
        loop: asyncio.AbstractEventLoop,
        idle_s: float,
        on_free: Callable[[Http1Connection], None],
        on_lost: Callable[[Http1Connection], None],
    ) -> None:
        self._sock = sock
        self._loop = loop
        self._idle_s = idle_s
        self._on_free, self._on_lost = on_free, on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._on_result: OnResult | None = None  # of the request under way
        self._repeated: _RepeatedResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at = float("inf")
        self._idle_since = time.monotonic()
        self._sent_at = self._deadline = 0.0
        self.closed = False
        self._reset(head_only=False, body_bytes_max=0)

    def _reset(self, *, head_only: bool, body_bytes_max: int) -> None:
        self._head_only = head_only
        self._body_bytes_max = body_bytes_max
        self._raw_bytes = self._head_bytes = self._body_bytes = 0
        self._status = 0
        self._headers: dict[str, str] = {}
        self._excerpt = b""
        self._head_done = self._done = self._surplus = self._keep = False

    # -- requests ---------------------------------------------------------------------------------

    def usable(self) -> bool:
        """Whether the peer has not closed it, as far as this machine can know."""
        if self.closed or self._transport is None:
            return False
        idle_s = time.monotonic() - self._idle_since
        if idle_s < _PEEK_AFTER_S:
            return True
        try:
            self._sock.recv(1, _PEEK)
        except BlockingIOError:
            return idle_s < self._idle_s
        except OSError:
            return False
        return False

    def send(self, head: bytes, request: OutgoingRequest, on_result: OnResult, *, deadline: float) -> None:
        """Write a request and its encoded head; `on_result` is called with the response or a `SendFailure`.

        By then the connection is free again, so that it can be used for the next request at once.
        """
        assert self._transport is not None
        self._reset(head_only=request.method == "HEAD", body_bytes_max=request.response_bytes_max)
        self._sent_at = time.monotonic()
        self._deadline = deadline
        if deadline < self._fires_at:
            self._set_timer(deadline)
        self._on_result, body = on_result, request.body
        if len(body) <= _WRITE_JOINED_BYTES_MAX:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))

    def abandon(self, on_result: OnResult) -> None:
        """Close the connection if this request is still under way; its result is not given then."""
        if self._on_result == on_result:
            self._on_result = None
            self.drop()

    def drop(self, failure: SendFailure | None = None) -> None:
        """Close at once; a waiting request gets the failure."""
        on_result, self._on_result = self._on_result, None
        if on_result is not None:
            # Later: whoever drops a connection may be in the middle of a change to the pool.
            result = failure or SendFailure("reset", "the sender closed the connection")
            self._loop.call_soon(on_result, result)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self.closed:
            self.closed = True
            if self._transport is not None:
                self._transport.abort()

    # -- time -------------------------------------------------------------------------------------

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = at
        self._timer = self._loop.call_later(max(0.0, at - time.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._fires_at = None, float("inf")
        due = self._idle_since + self._idle_s if self._on_result is None else self._deadline
        # The event loop's timers may fire a moment early.
        if due > time.monotonic() + 0.001:
            self._set_timer(due)
        elif self._on_result is None:
            self.drop()
        else:
            self.drop(SendFailure("timeout", "no complete response within the time limit"))

    # -- transport callbacks ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self.closed:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        if self._on_result is not None:
            self._end_by_close(exc)
        self.drop()
        self._on_lost(self)

    def _end_by_close(self, exc: Exception | None) -> None:
        framed = "content-length" in self._headers or "transfer-encoding" in self._headers
        if self._head_done and not framed and exc is None:
            self._finish(reusable=False)
        else:
            part = "in the middle of its response" if self._raw_bytes else "without a response"
            self.drop(SendFailure("reset", f"the receiver closed the connection {part}"))

    def data_received(self, data: bytes) -> None:
        if self._on_result is None:
            self.drop()  # an unsolicited response would be taken for the next request's
            return
        if self._repeats(data):
            self._finish(reusable=True)
            return
        self._raw_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._done:
                self.drop(SendFailure("bad_response", "the response is not HTTP/1.1"))
                return
            self._surplus = True
        if self._done:
            reusable = self._keep and not self._surplus and self._kept_alive()
            if reusable and self._raw_bytes == len(data) <= _REPEATED_BYTES_MAX:
                self._repeated = _RepeatedResponse(
                    data, self._status, self._headers, self._excerpt, self._body_bytes
                )
            self._finish(reusable=reusable)
        elif not self._head_done:
            self._check_head(self._raw_bytes)
        elif self._body_bytes > self._body_bytes_max:
            self._finish(reusable=False)

    def _repeats(self, data: bytes) -> bool:
        """Whether this is the last response once more, as most answers to webhooks are: no need to parse."""
        last = self._repeated
        if last is None or self._raw_bytes or data != last.data or self._head_only:
            return False
        if last.body_bytes > self._body_bytes_max:
            return False
        self._status, self._headers, self._excerpt = last.status, last.headers, last.excerpt
        return True

    def _check_head(self, read_bytes: int) -> None:
        if read_bytes > HEAD_BYTES_MAX:
            self.drop(SendFailure("too_large", f"the response's head is over {HEAD_BYTES_MAX:,} bytes"))

    def _finish(self, *, reusable: bool) -> None:
        if self._head_bytes > HEAD_BYTES_MAX:
            self._check_head(self._head_bytes)
            return
        on_result, self._on_result = self._on_result, None
        assert on_result is not None
        self._idle_since = now = time.monotonic()
        response = ReceiverResponse(self._status, self._headers, self._excerpt, now - self._sent_at)
        assert self._transport is not None
        # A receiver that responded before it had the whole request would take the rest for the next one.
        if reusable and not self.closed and not self._transport.get_write_buffer_size():
            self._on_free(self)
        else:
            self.drop()
        # Last: it may send the next request on this connection.
        on_result(response)

    def _kept_alive(self) -> bool:
        """Whether the receiver keeps the connection; a stated keep-alive time is respected."""
        stated = self._headers.get("keep-alive")
        match = _KEEP_ALIVE_S.search(stated) if stated else None
        if match:
            self._idle_s = min(self._idle_s, int(match[1]) - _KEEP_ALIVE_MARGIN_S)
        return self._idle_s > 0

    # -- parser callbacks -------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._surplus = self._done

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_bytes += len(name) + len(value) + 4
        if self._head_done or self._head_bytes > HEAD_BYTES_MAX:
            return
        key, text = name.lower().decode("latin-1"), value.decode("latin-1")
        known = self._headers.get(key)
        self._headers[key] = text if known is None else f"{known}, {text}"

    def on_headers_complete(self) -> None:
        if self._done:
            return
        status = self._parser.get_status_code()
        if status < 200:
            self._headers = {}  # an interim response; the final one follows
            return
        self._status = status
        self._head_done = True
        self._done = self._head_only

    def on_body(self, body: bytes) -> None:
        if self._done:
            return
        missing = min(EXCERPT_BYTES_MAX, self._body_bytes_max) - self._body_bytes
        if missing > 0:
            self._excerpt += body[:missing]
        self._body_bytes += len(body)

    def on_message_complete(self) -> None:
        if self._head_done and not self._done:
            self._done = True
            self._keep = self._parser.should_keep_alive()
