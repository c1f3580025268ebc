"""The outermost layer: one ASGI callable over webhooks and routes.

request ──► hook? ──► Ingest ──► inbox
   │
   └─ request id, headers, figures ──► routes
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import structlog
from litestar import Litestar

from holdfast import tracing
from holdfast.clock import Clock
from holdfast.config import Config
from holdfast.errors import TooManyRequestsError
from holdfast.http import time_limit
from holdfast.http.change_stream import ChangeStream
from holdfast.http.error_responses import ErrorFormats, encode_error, internal, refusal
from holdfast.http.guard import HEAD
from holdfast.http.ingest import Ingest, Receive, Scope, Send, request_id_in
from holdfast.http.metrics import Metrics
from holdfast.http.microcache import MICROCACHE_S, KeptResponse, Key, Microcache, key_of
from holdfast.http.rate_limit import Addresses, RateLimiter
from holdfast.http.visitors import set_cookies

log = structlog.get_logger("holdfast.http")

_SAFE: Final = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
_ONLY_HTTPS: Final = {b"strict-transport-security": b"max-age=31536000"}
_TOO_SLOW: Final = "it took too long and was aborted; it may have had its effect: look before you repeat it"
UNROUTED: Final = "unrouted"
_TRACE: Final = tracing.HEADER.encode()


class AsgiApp:
    """What a server serves. `ready` is for whoever started it to set."""

    def __init__(
        self,
        app: Litestar,
        webhooks: Mapping[str, Ingest],
        metrics: Metrics,
        *,
        changes: ChangeStream,
        config: Config,
        formats: ErrorFormats,
        rate_limiter: RateLimiter,
        clock: Clock,
    ) -> None:
        self._formats, self._rate_limiter = formats, rate_limiter
        self._microcache = Microcache(clock)
        self.app, self.webhooks, self.metrics = app, webhooks, metrics
        # By the request's target as it is written, where that can be the path alone.
        self.webhook_batches: dict[Ingest, Any] = {}  # of the server that serves this
        self.direct_webhooks = {path.encode(): one for path, one in webhooks.items() if quote(path) == path}
        self.ready = False
        self.changes = changes
        self._addresses = Addresses(config.proxies)
        self.read_s = config.limits.read_s
        self._request_s = config.limits.request_s
        self._headers = _SAFE | (_ONLY_HTTPS if config.public_url.startswith("https://") else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)  # type: ignore[arg-type]
            return
        began = time.perf_counter()
        ingest = self.webhooks.get(scope["path"])
        if ingest is not None:
            route, status = scope["path"], await ingest(scope, receive, send)
        else:
            key = key_of(scope)
            kept = self._microcache.find(key)
            if kept is not None and self._admits(scope):
                route, status = kept.route, await self._send_kept(scope, kept, send)
            else:
                asked = _as_get(scope) if scope["method"] == "HEAD" else scope
                status = await self._answer(asked, receive, send, key=key)
                route = asked.get("path_template") or UNROUTED
        self.metrics.answered(scope["method"], route, status, time.perf_counter() - began)

    def _admits(self, scope: Scope) -> bool:
        """Whether the address may ask; where it may not, the usual way tells it so."""
        try:
            self._rate_limiter.pass_stranger(self._addresses.of(scope))
        except TooManyRequestsError:
            return False
        return True

    async def _send_kept(self, scope: Scope, kept: KeptResponse, send: Send) -> int:
        headers = [*kept.headers, (b"x-request-id", request_id_in(scope["headers"]).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": kept.body})
        return 200

    async def _answer(self, scope: Scope, receive: Receive, send: Send, *, key: Key | None) -> int:
        request_id = request_id_in(scope["headers"])
        structlog.contextvars.bind_contextvars(request_id=request_id)
        told = {
            "request_id": request_id, "address": self._addresses.of(scope),
            "trusted_hops": self._addresses.all_trusted(scope),
        }  # fmt: skip
        scope["state"] = {**scope.get("state", {}), **told}
        answering = _Answering(send, request_id, self._headers, state=scope["state"])
        if key is not None:
            answering.keep = partial(self._keep, scope, key)
        try:
            async with asyncio.timeout(self._request_s) as limit:
                time_limit.note(scope, limit)
                await self._routed(scope, _receiving(scope, receive), answering)
        except Exception as fault:
            if isinstance(fault, TimeoutError) and limit.expired():
                log.warning("request timed out", path=scope["path"], request_id=request_id)
                late = refusal("timed_out", _TOO_SLOW, request_id)
                await answering.instead(504, encode_error(late, self._formats.of(scope)))
            else:
                log.error("request failed", path=scope["path"], request_id=request_id, exc_info=fault)
                broken = encode_error(internal(request_id), self._formats.of(scope))
                await answering.instead(500, broken)
        return answering.status

    def _keep(self, scope: Scope, key: Key, start: Mapping[str, Any], body: bytes) -> None:
        seconds = scope["state"].get(MICROCACHE_S)
        if seconds:
            route = scope.get("path_template") or UNROUTED
            self._microcache.keep(key, start, body, route=route, seconds=seconds)

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not tracing.on:
            await self.app(scope, receive, send)  # type: ignore[arg-type]
            return
        parent = next((value.decode("latin-1") for name, value in scope["headers"] if name == _TRACE), "")
        with tracing.span(scope["method"], kind="server", parent=parent) as part:
            await self.app(scope, receive, send)  # type: ignore[arg-type]
            part.update_name(f"{scope['method']} {scope.get('path_template') or UNROUTED}")


def _as_get(scope: Scope) -> Scope:
    """A HEAD is answered as its GET; the server beneath keeps its own scope, and leaves the body out."""
    return {**scope, "method": "GET", "state": {**scope.get("state", {}), HEAD: True}}


def _receiving(scope: Scope, receive: Receive) -> Receive:
    """Notes when the client hangs up."""

    async def received() -> MutableMapping[str, Any]:
        message = await receive()
        if message["type"] == "http.disconnect":
            scope["state"]["hung_up"] = True
        return message

    return received


class _Answering:
    """Passes an answer on, with the headers that every answer has."""

    def __init__(
        self, send: Send, request_id: str, usual: Mapping[bytes, bytes], *, state: Mapping[str, Any]
    ) -> None:
        self._send, self._id, self._usual, self._state = send, request_id, usual, state
        self.status = 0
        self.keep: Callable[[Mapping[str, Any], bytes], None] | None = None
        self._start: MutableMapping[str, Any] = {}

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self._id.encode())]
            headers += set_cookies(self._state)
            there = {name for name, _ in headers}
            message["headers"] = headers + [pair for pair in self._usual.items() if pair[0] not in there]
            self._start = message
        elif self.keep is not None and not message.get("more_body"):
            self.keep(self._start, message.get("body", b""))
        await self._send(message)

    async def instead(self, status: int, body: bytes) -> None:
        """Answer with a fault in place of what did not come."""
        if self.status:
            # The answer has begun: cutting it off is the only way left to say that it is not whole.
            raise ConnectionError("the answer broke off")
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(b"retry-after", b"1")] if status == 504 else []
        await self({"type": "http.response.start", "status": status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
