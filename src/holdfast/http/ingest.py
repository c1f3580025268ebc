"""Providers' webhooks: bare ASGI, straight into the inbox. A 2xx means: kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import AsyncExitStack
from io import BytesIO
from typing import Any, Final

from holdfast.error_format import PLATFORM_FORMAT, ErrorFormat
from holdfast.errors import (
    HoldfastError,
    InvalidError,
    NotOursError,
    RetryLaterError,
    TooLargeError,
    UnverifiedError,
)
from holdfast.http.backpressure import Backpressure
from holdfast.http.error_responses import answer_to, encode_error, internal, log, refusal, status_in
from holdfast.ids import ulid
from holdfast.kit.inbox import Inbox, Receipt
from holdfast.service import Webhook
from holdfast.web import retry_after

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

LARGE_BYTES: Final = 1_000_000
LARGE_AT_ONCE: Final = 2

_JSON: Final = (b"content-type", b"application/json")
_KEPT: Final = b'{"status":"kept"}'
_KNOWN: Final = b'{"status":"duplicate"}'
_IGNORED: Final = b'{"status":"ignored"}'
# Nothing is lost: nobody was told that it is kept, and if it was after all, it is known when it comes again.
_TOO_SLOW: Final = "it could not be kept in time; send it again, it is kept once however often it comes"
_GIVEN_ID: Final = re.compile(rb"[A-Za-z0-9_.-]{8,64}")


class Ingest:
    """One hook as an ASGI application.

    A large body holds one of the `large` places from where it outgrows a small one until it is stored, so
    that memory is bounded; a sender without a place is not read from meanwhile.
    """

    def __init__(
        self,
        hook: Webhook,
        inbox: Inbox,
        *,
        time_limit_s: float,
        large: asyncio.Semaphore,
        backpressure: Backpressure,
        errors: ErrorFormat = PLATFORM_FORMAT,
    ) -> None:
        self.hook, self._inbox, self._large, self._errors = hook, inbox, large, errors
        self._backpressure = backpressure
        self._time_limit_s = time_limit_s if hook.time_limit_s is None else hook.time_limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Take a message in and answer; gives the answer's status."""
        if scope["method"] != "POST":
            id = request_id_of(scope)
            refused = encode_error(refusal("method_not_allowed", "use POST", id), self._errors)
            return await _answer(send, 405, refused, (b"allow", b"POST"), _told(id))
        limit = asyncio.timeout(self._time_limit_s)
        try:
            async with limit:
                received = await self._receive(_headers(scope), receive)
        except HoldfastError as fault:
            return await self._refuse(send, fault, request_id_of(scope))
        except Exception as fault:
            id = request_id_of(scope)
            if isinstance(fault, TimeoutError) and limit.expired():
                log.warning("webhook timed out", path=scope["path"], request_id=id)
                late = encode_error(refusal("timed_out", _TOO_SLOW, id), self._errors)
                return await _answer(send, 504, late, _told(id), (b"retry-after", b"1"))
            log.error("webhook failed", path=scope["path"], request_id=id, exc_info=fault)
            return await _answer(send, 500, encode_error(internal(id), self._errors), _told(id))
        if received.duplicate:
            return await _answer(send, self.hook.statuses.duplicate, _KNOWN)
        return await _answer(send, self.hook.statuses.stored, _KEPT)

    async def _receive(self, headers: Mapping[str, str], receive: Receive) -> Receipt:
        source, message = self.hook.source, await receive()
        if not message.get("more_body"):
            body = _within(message.get("body", b""), source.body_bytes_max)
            async with self._backpressure:
                return await self._inbox.receive(source, headers, body)
        async with AsyncExitStack() as places:
            body = await self._whole_body(message, receive, headers=headers, places=places)
            async with self._backpressure:
                return await self._inbox.receive(source, headers, body)

    async def _whole_body(
        self, message: Message, receive: Receive, *, headers: Mapping[str, str], places: AsyncExitStack
    ) -> bytes:
        """The body in several parts, or a refusal as soon as it is too long."""
        # Filled in place: joined parts would take the memory twice.
        bytes_max, length = self.hook.source.body_bytes_max, headers.get("content-length", "")
        whole = BytesIO(bytes(min(int(length), bytes_max)) if length.isdecimal() else b"")
        size, has_place = whole.write(message.get("body", b"")), False
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                raise InvalidError("the sender hung up before the body was whole")
            size += whole.write(message.get("body", b""))
            if size > bytes_max:
                break
            if size > LARGE_BYTES and not has_place:
                await places.enter_async_context(self._large)
                has_place = True
        whole.truncate()
        return _within(whole.getvalue(), bytes_max)

    async def _refuse(self, send: Send, fault: HoldfastError, id: str) -> int:
        if isinstance(fault, NotOursError):
            # A refusal would only make the provider send it again.
            return await _answer(send, 200, _IGNORED)
        if isinstance(fault, UnverifiedError):
            status = self.hook.statuses.unverified
        elif isinstance(fault, InvalidError) and not isinstance(fault, TooLargeError):
            status = self.hook.statuses.malformed
        else:
            status = status_in(fault, self._errors)
        if isinstance(fault, RetryLaterError):
            # Without the frames of its traceback, which would keep the body in memory meanwhile.
            fault.with_traceback(None)
            await self._backpressure.pace_refusal()
        after = retry_after(fault)
        extra = [(b"retry-after", after.encode())] if after else []
        body = encode_error(answer_to(fault, id), self._errors)
        return await _answer(send, status, body, _told(id), *extra)


def request_id_of(scope: Scope) -> str:
    """The sender's own id where it is a sane one, so that its log and this one agree; else a new one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GIVEN_ID.fullmatch(value):
            return str(value.decode())
    return ulid()


def _told(request_id: str) -> tuple[bytes, bytes]:
    return (b"x-request-id", request_id.encode())


def _headers(scope: Scope) -> Mapping[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _within(body: bytes, bytes_max: int) -> bytes:
    if len(body) > bytes_max:
        raise TooLargeError(f"a body takes at most {bytes_max:,} bytes")
    return body


async def _answer(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> int:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [_JSON, length, *headers]})
    await send({"type": "http.response.body", "body": body})
    return status
