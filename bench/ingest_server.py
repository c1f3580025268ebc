"""Servers that verify a webhook, keep it and answer 202: `python -m bench.ingest_server KIND URL`.

`ours` is Holdfast's; `bare` is a bare ASGI handler with a group commit by hand into the same table, that
knows no other errors than a wrong signature; `minimal` is a protocol without a framework and with a table of
its own, `minimal-ours` the floor: our table, documents and promises by hand; `fastapi` is FastAPI with
SQLAlchemy, one commit a request. `empty` and `minimal-empty` are `bare` and `minimal` without a store: what
the way there costs when nothing is kept.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop

from bench import ingest_floor, ingest_minimal, raw_postgres, raw_sqlite
from bench.ingest_fastapi import KEPT, fastapi
from bench.ingest_minimal import Keep, own_table
from holdfast.config import load_config
from holdfast.http import backpressure
from holdfast.http.app import create_app
from holdfast.kit.inbox import InboxItem, Source
from holdfast.providers.github import GithubVerifier
from holdfast.runtime import Runtime
from holdfast.server import settings
from holdfast.service import Parts, Service, Webhook
from holdfast.worker import freeze_gc

SECRET = "a secret of the two"
PATH = "/bench/webhook"
ENDLESS = 1_000_000
_COLUMNS = (
    "_key", "_version", "tenantId", "finishedAt", "status", "receivedAt", "queue", "turn", "lane", "dueAt",
    "fence", "owner", "_body",
)  # fmt: skip
_TYPES = (
    "text", "bigint", "text", "timestamptz", "text", "timestamptz", "text", "bigint", "text", "timestamptz",
    "bigint", "text", "json",
)  # fmt: skip
_NAMES = ", ".join(f'"{name}"' for name in _COLUMNS)
_SQLITE = f"INSERT INTO holdfast_inbox ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))})"
_POSTGRES = raw_postgres.Statement(raw_postgres.insert_rows("holdfast_inbox", _NAMES, _TYPES))


async def ours(url: str) -> Any:
    source = Source(name="bench", verifier=GithubVerifier(SECRET))
    service = Service(
        name="bench", summary="", documents=[],
        build=lambda _: Parts(webhooks=[Webhook(path="/webhook", source=source)]),
    )  # fmt: skip
    home = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    # Nobody handles what is stored here; the bounds of a backlog are the subject of `overload_ingest`.
    backpressure.BEHIND = ENDLESS  # type: ignore[misc]
    limits = {"backlog_max": ENDLESS}
    config = load_config({"store": url, "home": home, "limits": limits}, environ={})
    runtime = await Runtime.open(config, services=[service])
    return create_app(runtime)


async def _our_table(url: str) -> Keep:
    """The same row as ours, by the fastest hand-written group commit."""
    stamp: Callable[[datetime], Any]
    if url.startswith("sqlite"):
        group: Any = raw_sqlite.GroupCommit(raw_sqlite.connect(url, [InboxItem]), _SQLITE)
        stamp = lambda at: int(at.timestamp() * 1e6)  # noqa: E731
    else:
        links = [await raw_postgres.connect(url, made) for made in ([InboxItem], ())]
        group, stamp = raw_postgres.GroupCommit(links, _POSTGRES), lambda at: at

    async def keep(headers: dict[str, str], body: bytes) -> None:
        mark, now = headers["x-github-delivery"], datetime.now(UTC)
        item = InboxItem(
            id=f"bench_{mark}", tenant_id="-", source="bench", message_id=mark, received_at=now, due_at=now,
            headers={k: v for k, v in headers.items() if k.startswith("x-")}, body=body, body_bytes=len(body),
            lane="bench:-",
        )  # fmt: skip
        at = stamp(now)
        await group.put((
            item.id, 1, item.tenant_id, None, item.status, at, "", 0, item.lane, at, 0, "",
            msgspec.json.encode(item).decode(),
        ))  # fmt: skip

    return keep


async def bare(url: str) -> Any:
    return _verifying(await _our_table(url))


async def empty(url: str) -> Any:
    return _verifying(None)


def _verifying(keep: Keep | None) -> Any:
    key = SECRET.encode()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        message = await receive()
        parts = [message["body"]]
        while message.get("more_body"):
            message = await receive()
            parts.append(message["body"])
        body = b"".join(parts)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        expected = "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
        fits = hmac.compare_digest(expected, headers.get("x-hub-signature-256", ""))
        if fits and keep is not None:
            await keep(headers, body)
        answer = [(b"content-type", b"application/json"), (b"content-length", b"17")]
        await send({"type": "http.response.start", "status": 202 if fits else 401, "headers": answer})
        await send({"type": "http.response.body", "body": KEPT})

    return app


async def _serve(kind: str, url: str) -> None:
    models: dict[str, Callable[[str], Awaitable[Any]]] = {
        "ours": ours, "bare": bare, "empty": empty, "fastapi": partial(fastapi, path=PATH, secret=SECRET)
    }  # fmt: skip
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    if kind == "minimal-ours":
        port = listener.getsockname()[1]
        ready = partial(print, port, flush=True)
        await ingest_floor.serve(listener, url, secret=SECRET, ready=ready)
        return
    if kind.startswith("minimal"):
        keep = await own_table(url) if kind == "minimal" else None
        print(listener.getsockname()[1], flush=True)
        await ingest_minimal.serve(listener, keep, secret=SECRET)
        return
    app = await models[kind](url)
    print(listener.getsockname()[1], flush=True)
    if kind == "ours":
        freeze_gc()
    await uvicorn.Server(_settings(kind, app)).serve(sockets=[listener])


def _settings(kind: str, app: Any) -> uvicorn.Config:
    if kind == "ours":
        return settings(app)
    return uvicorn.Config(
        app, http="httptools", log_level="error", access_log=False, server_header=False, lifespan="off"
    )


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sys.argv[1], sys.argv[2]))
