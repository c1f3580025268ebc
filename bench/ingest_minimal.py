"""A webhook server for speed alone: a protocol on the bare event loop, a table of four columns, group commit.

It verifies and stores durably as the others do, and knows nothing else: no limits, no duplicates told apart,
no other path, nothing that would handle a message. With our table in place of its own it is the floor.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable
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
Keep = Callable[[dict[str, str], bytes], Awaitable[None]]


async def own_table(url: str) -> Keep:
    """What stores rows in the smallest table that holds a message, as durably as ours does."""
    make = "CREATE TABLE messages (id TEXT PRIMARY KEY, received_us BIGINT, headers TEXT, body {})"
    if url.startswith("sqlite"):
        link = raw_sqlite.connect(url)
        link.execute(make.format("BLOB"))
        group: Any = raw_sqlite.GroupCommit(link, _SQLITE)
    else:
        links = [await raw_postgres.connect(url) for _ in range(2)]
        await links[0].execute(make.format("BYTEA"))
        group = raw_postgres.GroupCommit(links, raw_postgres.Statement(_POSTGRES))

    async def keep(headers: dict[str, str], body: bytes) -> None:
        received_us = time.time_ns() // 1_000
        await group.put((headers["x-github-delivery"], received_us, _ENCODE(headers).decode(), body))

    return keep


class Ingest(asyncio.Protocol):
    """One connection, one message at a time."""

    def __init__(self, keep: Keep | None, key: bytes) -> None:
        self._keep, self._keyed = keep, hmac.new(key, digestmod=hashlib.sha256)
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
        if fits and self._keep is not None:
            await self._keep(headers, body)
        self._transport.write(_ANSWER % (202 if fits else 401))


async def serve(listener: Any, keep: Keep | None, *, secret: str) -> None:
    """Serve on a listening socket until the process is ended."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Ingest(keep, secret.encode()), sock=listener
    )
    await server.serve_forever()
