"""Requests that were read whole, parsed by the least code; all others are left to the server's usual way.

The parser is the server's own (llhttp). What is not one ordinary request with a body is not judged here: the
usual way reads the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import httptools

# What changes how a request is read or answered.
NOT_ORDINARY: Final = frozenset(("transfer-encoding", "expect", "upgrade"))
_KEEP_ALIVE: Final = "keep-alive"
_NAMES_MAX: Final = 1_000
_NAME_BYTES_MAX: Final = 64
_BEGUN, _ENDED = object(), object()


class _HeaderNames(dict[bytes, str]):
    """Names as text in lower case; each of the usual ones is decoded once."""

    def __missing__(self, name: bytes) -> str:
        text = name.lower().decode("latin-1")
        if len(self) < _NAMES_MAX and len(name) <= _NAME_BYTES_MAX:  # whoever sends them is not known yet
            self[name] = text
        return text


header_names: Final = _HeaderNames()


class WholeRequestParser:
    """Parses one request after the other, each from all of its bytes.

    Example: `headers, body = parser.parse(b"POST / HTTP/1.1\\r\\ncontent-length: 2\\r\\n\\r\\nhi")`
    """

    def __init__(self) -> None:
        self._headers: dict[str, str] = {}
        self._parts: list[Any] = []
        self.on_body = self._parts.append
        self.on_message_begin = partial(self._parts.append, _BEGUN)
        self.on_message_complete = partial(self._parts.append, _ENDED)
        self._parser = httptools.HttpRequestParser(self)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[header_names[name]] = value.decode("latin-1")

    def parse(self, data: bytes) -> tuple[Mapping[str, str], bytes] | None:
        """Return headers, by names in lower case, and body; None for what is not one ordinary request.

        Ordinary is one whole request of HTTP/1.1 with a length, no header twice, whose connection stays open.
        """
        parts = self._parts
        parts.clear()
        headers: dict[str, str] = {}
        self._headers = headers
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            parts.clear()
        if len(parts) == 3 and parts[0] is _BEGUN and parts[2] is _ENDED:
            body = parts[1]
            # One line for each, the first and an empty one: none was there twice or folded.
            lines = data.count(b"\n", 0, len(data) - len(body))
            stays_open = headers.get("connection", _KEEP_ALIVE).lower() == _KEEP_ALIVE
            if lines == len(headers) + 2 and stays_open and NOT_ORDINARY.isdisjoint(headers):
                return headers, body
        # It may have seen a part of a request, or one after which nothing more comes.
        self._parser = httptools.HttpRequestParser(self)
        return None
