"""The outermost layer: one ASGI callable over webhooks and routes.

request ──► hook? ──► Ingest ──► inbox
   │
   └─ request id, headers, figures ──► routes
"""

from __future__ import annotations

import time
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

import msgspec
import structlog
from litestar import Litestar

from holdfast.http.answers import internal
from holdfast.http.ingest import Ingest, Receive, Scope, Send, request_id_of
from holdfast.http.metrics import Metrics

log = structlog.get_logger("holdfast.http")

_SAFE: Final = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
UNROUTED: Final = "unrouted"


class Surface:
    """What a server serves. `ready` is for whoever started it to set."""

    def __init__(self, app: Litestar, hooks: Mapping[str, Ingest], metrics: Metrics) -> None:
        self.app, self.hooks, self.metrics = app, hooks, metrics
        self.ready = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)  # type: ignore[arg-type]
            return
        began = time.perf_counter()
        ingest = self.hooks.get(scope["path"])
        if ingest is not None:
            route, status = scope["path"], await ingest(scope, receive, send)
        else:
            status = await self._answer(scope, receive, send)
            route = scope.get("path_template") or UNROUTED
        self.metrics.answered(scope["method"], route, status, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> int:
        request_id = request_id_of(scope)
        scope["state"] = {**scope.get("state", {}), "request_id": request_id}
        answering = _Answering(send, request_id)
        try:
            await self.app(scope, receive, answering)  # type: ignore[arg-type]
        except Exception as fault:
            log.error("request failed", path=scope["path"], request_id=request_id, exc_info=fault)
            await answering.apologise()
        return answering.status


class _Answering:
    """Passes an answer on, with the headers that every answer has."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send, self._id = send, request_id
        self.status = 0

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._id.encode())]
            there = {name for name, _ in headers}
            message["headers"] = headers + [pair for pair in _SAFE.items() if pair[0] not in there]
        await self._send(message)

    async def apologise(self) -> None:
        if self.status:
            # The answer has begun: cutting it off is the only way left to say that it is not whole.
            raise ConnectionError("the answer broke off")
        body = msgspec.json.encode(internal(self._id))
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self({"type": "http.response.start", "status": 500, "headers": headers})
        await self({"type": "http.response.body", "body": body})
