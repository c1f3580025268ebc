"""One write for a response's head and the first part of its body."""

from __future__ import annotations

import asyncio
from typing import Any

_INTERIM = b"HTTP/1.1 100"


class ResponseTransport(asyncio.Transport):
    """The transport of one response, which holds its head back until the body begins.

    The server beneath writes them apart, which is two system calls, two packets and two wake-ups of the
    client for every response.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._head: bytes | None = None
        self._begun = False

    def write(self, data: Any) -> None:
        if self._transport.is_closing():
            return  # what came after this request could not be parsed
        if self._begun:
            if self._head is not None:
                data, self._head = self._head + data, None
            self._transport.write(data)
        elif data.startswith(_INTERIM):
            self._transport.write(data)
        else:
            self._begun, self._head = True, data

    def close(self) -> None:
        if self._head is not None:
            self._transport.write(self._head)
            self._head = None
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()
