"""Providers' webhooks: bare ASGI, straight into the inbox. A 2xx means: kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

import msgspec

from holdfast.errors import HoldfastError, InvalidError, TooLargeError, UnverifiedError
from holdfast.http.answers import answer_to, refusal, retry_after, status_of
from holdfast.ids import ulid
from holdfast.kit.inbox import Inbox
from holdfast.service import Hook

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON: Final = (b"content-type", b"application/json")
_KEPT: Final = b'{"status":"kept"}'
_KNOWN: Final = b'{"status":"duplicate"}'
_ENCODE: Final = msgspec.json.Encoder().encode


class Ingest:
    """One hook as an ASGI application."""

    def __init__(self, hook: Hook, inbox: Inbox) -> None:
        self._hook, self._inbox = hook, inbox

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            refused = refusal("method_not_allowed", "use POST", _request_id(scope))
            await _answer(send, 405, _ENCODE(refused), (b"allow", b"POST"))
            return
        try:
            body = await _body(receive, self._hook.source.body_bytes_max)
            received = await self._inbox.receive(self._hook.source, _headers(scope), body)
        except HoldfastError as fault:
            await self._refuse(send, fault, _request_id(scope))
            return
        if received.duplicate:
            await _answer(send, self._hook.answers.duplicate, _KNOWN)
        else:
            await _answer(send, self._hook.answers.kept, _KEPT)

    async def _refuse(self, send: Send, fault: HoldfastError, request_id: str) -> None:
        if isinstance(fault, UnverifiedError):
            status = self._hook.answers.unverified
        elif isinstance(fault, InvalidError) and not isinstance(fault, TooLargeError):
            status = self._hook.answers.malformed
        else:
            status = status_of(fault)
        after = retry_after(fault)
        extra = [(b"retry-after", after.encode())] if after else []
        await _answer(send, status, _ENCODE(answer_to(fault, request_id)), *extra)


def _request_id(scope: Scope) -> str:
    return str(scope.get("state", {}).get("request_id") or ulid())


def _headers(scope: Scope) -> Mapping[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _body(receive: Receive, bytes_max: int) -> bytes:
    """The whole body, or a refusal as soon as it is too long."""
    message = await receive()
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return _within(body, bytes_max)
    parts = [body]
    size = len(body)
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidError("the sender hung up before the body was whole")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > bytes_max:
            break
    return _within(b"".join(parts), bytes_max)


def _within(body: bytes, bytes_max: int) -> bytes:
    if len(body) > bytes_max:
        raise TooLargeError(f"a body takes at most {bytes_max:,} bytes")
    return body


async def _answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})
