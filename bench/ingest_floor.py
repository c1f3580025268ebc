"""The floor of webhooks taken in: the least hand-written server that keeps our promises on our table.

Kept: the signature, the limits of a body's size and of a message's id, no header that may hold a credential,
a document that is validated before it is stored, one row for each message id with the outcome of each known
(kept or duplicate), a version, durability before the response, other processes notified, and on SQLite
checkpoints beside the writer. On PostgreSQL it sends the statement that our writer sends, with the mark that
tells the outcome after a broken link. Left out: other paths and methods, large, chunked and pipelined
requests, slow clients, time limits, backpressure, metrics, traces, request ids, tenants, orders, the worker
of the process, lifecycles and other writes in the same batch, a lost connection to the server, versions
reserved across processes. None of our code is in the measured path but the statement's rendering.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httptools
import msgspec

from bench.ingest_floor_writers import Respond, Row, open_writer
from holdfast.kit.inbox import InboxItem

_SECRET_WORDS: Final = ("authorization", "cookie", "secret", "token")
_BODY_BYTES_MAX, _ID_CHARACTERS_MAX = 1_000_000, 300


def _response(status: str, body: bytes) -> bytes:
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


_KEPT: Final = _response("202 Accepted", b'{"status":"kept"}')
_DUPLICATE: Final = _response("202 Accepted", b'{"status":"duplicate"}')
_REFUSED: Final = _response("401 Unauthorized", b'{"status":"forged"}')
_INVALID: Final = _response("400 Bad Request", b'{"status":"invalid"}')
_FAILED: Final = _response("503 Service Unavailable", b'{"status":"failed"}')


class _Stored(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """An inbox item as it is stored; its body stays base64, which the encoder has just made."""

    id: str
    tenant_id: str
    source: str
    message_id: str
    received_at: datetime
    headers: dict[str, str]
    body: str
    body_bytes: int
    upload_id: str
    chunks: int
    status: str
    due_at: datetime | None
    tries: int
    returned: int
    reason: str
    lane: str
    queue: str
    turn: int
    finished_at: datetime | None
    trace: str
    fence: int
    owner: str


_ENCODE: Final = msgspec.json.Encoder().encode
_VALIDATE: Final = msgspec.json.Decoder(_Stored).decode
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
Put = Callable[[Respond, Row], None]


class _Names(dict[bytes, tuple[str, bool]]):
    """Header names as text, and whether such a header is stored."""

    def __missing__(self, raw: bytes) -> tuple[str, bool]:
        name = raw.decode("latin-1").lower()
        stored = name.startswith(("x-", "webhook-")) or name in ("content-type", "user-agent")
        judged = self[raw] = name, stored and not any(word in name for word in _SECRET_WORDS)
        return judged


_names: Final = _Names()


class FloorIngest(asyncio.Protocol):
    """One connection, one message at a time."""

    def __init__(self, put: Put, keyed: Any, *, loop: asyncio.AbstractEventLoop, microseconds: bool) -> None:
        self._put, self._keyed, self._loop, self._microseconds = put, keyed, loop, microseconds
        self._parser = httptools.HttpRequestParser(self)
        self._all: dict[str, str] = {}
        self._kept: dict[str, str] = {}
        self._body = b""

    def connection_made(self, transport: Any) -> None:
        self._write = transport.write

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, raw: bytes, value: bytes) -> None:
        name, stored = _names[raw]
        self._all[name] = text = value.decode("latin-1")
        if stored:
            self._kept[name] = text

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        # Not while sockets are read: uvloop releases the GIL after each, and a writer thread would take it.
        self._loop.call_soon(self._take_in)

    def _take_in(self) -> None:
        headers, stored, body = self._all, self._kept, self._body
        self._all, self._kept, self._body = {}, {}, b""
        state = self._keyed.copy()
        state.update(body)
        if not hmac.compare_digest("sha256=" + state.hexdigest(), headers.get("x-hub-signature-256", "")):
            self._write(_REFUSED)
            return
        mark = headers.get("x-github-delivery", "")
        fits = 0 < len(mark) <= _ID_CHARACTERS_MAX and mark.isascii() and mark.isprintable()
        if not fits or "/" in mark or len(body) > _BODY_BYTES_MAX:
            self._write(_INVALID)
            return
        now = datetime.now(UTC)
        key = f"bench_{mark}"
        encoded = _ENCODE(InboxItem(
            id=key, tenant_id="-", source="bench", message_id=mark, received_at=now, headers=stored,
            body=body, body_bytes=len(body), due_at=now, lane="bench:-",
        ))  # fmt: skip
        _VALIDATE(encoded)
        at: Any = now
        stored_as: Any = encoded
        if self._microseconds:
            at, stored_as = (now - _EPOCH) // _MICROSECOND, encoded.decode()
        self._put(self._respond, (key, 0, "-", None, "pending", at, "", 0, "bench:-", at, 0, "", stored_as))

    def _respond(self, kept: bool | None) -> None:
        self._write(_FAILED if kept is None else _KEPT if kept else _DUPLICATE)


async def serve(listener: Any, url: str, *, secret: str, ready: Callable[[], None]) -> None:
    """Serve on a listening socket until the process is ended; `ready` is called once the store is made."""
    loop, writer = asyncio.get_running_loop(), await open_writer(url)
    keyed = hmac.new(secret.encode(), digestmod=hashlib.sha256)
    is_sqlite = url.startswith("sqlite")
    server = await loop.create_server(
        lambda: FloorIngest(writer.put, keyed, loop=loop, microseconds=is_sqlite), sock=listener
    )
    ready()
    await server.serve_forever()
