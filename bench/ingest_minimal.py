"""A webhook server for speed alone: a protocol on the bare event loop, a table of four columns, group commit.

It verifies and stores durably as the others do, and knows nothing else: no limits, no duplicates told apart,
no other path, nothing that would handle a message.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from typing import Any

import httptools
import msgspec

from bench import raw_postgres, raw_sqlite

_SQLITE = "INSERT INTO messages (id, received_us, headers, body) VALUES (?, ?, ?, ?)"
_POSTGRES = "INSERT INTO messages SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::bytea[])"
_ANSWER = (
    b"HTTP/1.1 %d -\r\ncontent-type: application/json\r\ncontent-length: 17\r\n\r\n" + b'{"status":"kept"}'
)
_ENCODE = msgspec.json.Encoder().encode


async def group_commit(url: str) -> Any:
    """What stores rows in the smallest table that holds a message, as durably as ours does."""
    make = "CREATE TABLE messages (id TEXT PRIMARY KEY, received_us BIGINT, headers TEXT, body {})"
    if url.startswith("sqlite"):
        link = raw_sqlite.connect(url, make=False)
        link.execute(make.format("BLOB"))
        return raw_sqlite.GroupCommit(link, _SQLITE)
    links = [await raw_postgres.connect(url) for _ in range(2)]
    await links[0].execute(make.format("BYTEA"))
    return raw_postgres.GroupCommit(links, _POSTGRES)


class Ingest(asyncio.Protocol):
    """One connection, one message at a time."""

    def __init__(self, group: Any, key: bytes) -> None:
        self._group, self._keyed = group, hmac.new(key, digestmod=hashlib.sha256)
        self._parser = httptools.HttpRequestParser(self)
        self._headers: dict[str, str] = {}
        self._body = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        headers, body, self._headers, self._body = self._headers, self._body, {}, b""
        asyncio.get_running_loop().create_task(self._store(headers, body))

    async def _store(self, headers: dict[str, str], body: bytes) -> None:
        state = self._keyed.copy()
        state.update(body)
        fits = hmac.compare_digest("sha256=" + state.hexdigest(), headers.get("x-hub-signature-256", ""))
        if fits and self._group is not None:
            received_us = time.time_ns() // 1_000
            await self._group.put((
                headers["x-github-delivery"], received_us, _ENCODE(headers).decode(), body,
            ))  # fmt: skip
        self._transport.write(_ANSWER % (202 if fits else 401))


async def serve(url: str, listener: Any, *, secret: str, keep: bool) -> None:
    """Serve on a listening socket until the process is ended."""
    group = await group_commit(url) if keep else None
    server = await asyncio.get_running_loop().create_server(
        lambda: Ingest(group, secret.encode()), sock=listener
    )
    await server.serve_forever()
