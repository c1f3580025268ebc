"""Providers' webhooks: bare ASGI, straight into the inbox. A 2xx means: kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack
from io import BytesIO
from typing import Any, Final, NamedTuple

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
from holdfast.http.time_limit import DeadlineTimer
from holdfast.http.whole_request import header_names
from holdfast.ids import ulid
from holdfast.kit.inbox import AcceptedMessage, Inbox, Receipt
from holdfast.service import Webhook
from holdfast.store.commit import Outcome
from holdfast.web import retry_after

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
RawHeaders = Sequence[tuple[bytes, bytes]]

LARGE_BYTES: Final = 1_000_000
LARGE_AT_ONCE: Final = 2

_JSON: Final = (b"content-type", b"application/json")
_KEPT: Final = b'{"status":"kept"}'
_KNOWN: Final = b'{"status":"duplicate"}'
_IGNORED: Final = b'{"status":"ignored"}'
# Nothing is lost: nobody was told that it is kept, and if it was after all, it is known when it comes again.
_TOO_SLOW: Final = "it could not be kept in time; send it again, it is kept once however often it comes"
_HUNG_UP: Final = "the sender hung up before the body was whole"
_NO_RESULTS: Final[list[AcceptedMessage | Exception | None]] = []
_GIVEN_ID: Final = re.compile(rb"[A-Za-z0-9_.-]{8,64}")


class WebhookResponse(NamedTuple):
    """The answer to a webhook; `headers` are those besides the type and length of the body, which is JSON."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


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
        path: str,
        time_limit_s: float,
        large: asyncio.Semaphore,
        backpressure: Backpressure,
        errors: ErrorFormat = PLATFORM_FORMAT,
    ) -> None:
        self.hook, self._inbox, self._large, self._errors = hook, inbox, large, errors
        self.path, self._backpressure = path, backpressure
        self._deadlines = DeadlineTimer(time_limit_s if hook.time_limit_s is None else hook.time_limit_s)
        self._stored = WebhookResponse(hook.statuses.stored, _KEPT)
        self._duplicate = WebhookResponse(hook.statuses.duplicate, _KNOWN)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> int:
        """Take a message in and answer; gives the answer's status."""
        if scope["method"] == "POST":
            raw = scope["headers"]
            response = await self._respond(raw, self._receive(header_map(raw), receive))
        else:
            id = request_id_in(scope["headers"])
            refused = encode_error(refusal("method_not_allowed", "use POST", id), self._errors)
            response = WebhookResponse(405, refused, ((b"allow", b"POST"), _told(id)))
        headers = [_JSON, (b"content-length", b"%d" % len(response.body)), *response.headers]
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        await send({"type": "http.response.body", "body": response.body})
        return response.status

    def respond(
        self, raw: RawHeaders, headers: Mapping[str, str], body: bytes
    ) -> Coroutine[Any, Any, WebhookResponse]:
        """Take a message in whose body is whole and small, and give the answer."""
        return self._respond(raw, self._store(headers, body))

    def accept(
        self, messages: Sequence[tuple[Mapping[str, str], bytes]]
    ) -> list[AcceptedMessage | Exception | None]:
        """Verify what `respond` would take in, headers and bodies, without a coroutine.

        For each what refuses it, or None where more than a commit must be waited for. What is accepted has
        one of the places of backpressure, until `leave`.
        """
        try:
            self._backpressure.raise_if_full()
        except RetryLaterError as fault:
            return [fault] * len(messages)
        entered, results = self._backpressure.enter_many(len(messages)), _NO_RESULTS
        try:
            results = self._inbox.accept(self.hook.source, messages[:entered])
        finally:
            if refused := entered - sum([type(one) is AcceptedMessage for one in results]):
                self._backpressure.leave(refused)
        return results if entered == len(messages) else [*results, *[None] * (len(messages) - entered)]

    def store(
        self, messages: Sequence[AcceptedMessage], loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[list[Outcome]]:
        """Start to store messages within the time limit, all or, where one is invalid, none."""
        storing = self._inbox.store_accepted(messages)
        self._deadlines.add(storing, loop)
        return storing

    def is_in_time(self, stored: asyncio.Future[list[Outcome]]) -> bool:
        """Whether what `store` started was done in time; to be asked once."""
        return self._deadlines.remove(stored)

    def leave(self, count: int) -> None:
        """Give back the places of messages."""
        self._backpressure.leave(count)

    def stored_response(self, *, stored: bool) -> WebhookResponse:
        return self._stored if stored else self._duplicate

    async def _respond(self, raw: RawHeaders, receiving: Coroutine[Any, Any, Receipt]) -> WebhookResponse:
        limit = self._deadlines.limit()
        try:
            self._backpressure.raise_if_full()
            with limit:
                received = await receiving
        except Exception as fault:
            receiving.close()
            if isinstance(fault, TimeoutError) and limit.expired:
                return self.too_late(raw)
            return await self.refuse(fault, raw)
        return self._duplicate if received.duplicate else self._stored

    def too_late(self, raw: RawHeaders) -> WebhookResponse:
        id = request_id_in(raw)
        log.warning("webhook timed out", path=self.path, request_id=id)
        late = encode_error(refusal("timed_out", _TOO_SLOW, id), self._errors)
        return WebhookResponse(504, late, (_told(id), (b"retry-after", b"1")))

    async def _receive(self, headers: Mapping[str, str], receive: Receive) -> Receipt:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidError(_HUNG_UP)
        if not message.get("more_body"):
            return await self._store(headers, message.get("body", b""))
        async with AsyncExitStack() as places:
            body = await self._whole_body(message, receive, headers=headers, places=places)
            return await self._store(headers, body)

    async def _store(self, headers: Mapping[str, str], body: bytes) -> Receipt:
        self.hook.source.check_size(body)
        async with self._backpressure:
            return await self._inbox.receive(self.hook.source, headers, body)

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
                raise InvalidError(_HUNG_UP)
            size += whole.write(message.get("body", b""))
            if size > bytes_max:
                break
            if size > LARGE_BYTES and not has_place:
                await places.enter_async_context(self._large)
                has_place = True
        whole.truncate()
        return whole.getvalue()

    async def refuse(self, fault: Exception, raw: RawHeaders) -> WebhookResponse:
        """Return the answer to a message that was not stored; one to come again later may wait."""
        id = request_id_in(raw)
        if not isinstance(fault, HoldfastError):
            log.error("webhook failed", path=self.path, request_id=id, exc_info=fault)
            return WebhookResponse(500, encode_error(internal(id), self._errors), (_told(id),))
        if isinstance(fault, NotOursError):
            # A refusal would only make the provider send it again.
            return WebhookResponse(200, _IGNORED)
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
        extra = ((b"retry-after", after.encode()),) if after else ()
        return WebhookResponse(status, encode_error(answer_to(fault, id), self._errors), (_told(id), *extra))


def request_id_in(headers: RawHeaders) -> str:
    """The sender's own id where it is a sane one, so that its log and this one agree; else a new one."""
    for name, value in headers:
        if name == b"x-request-id" and _GIVEN_ID.fullmatch(value):
            return value.decode()
    return ulid()


def header_map(headers: RawHeaders) -> Mapping[str, str]:
    """Headers by name, as a verifier takes them."""
    return {header_names[name]: value.decode("latin-1") for name, value in headers}


def _told(request_id: str) -> tuple[bytes, bytes]:
    return (b"x-request-id", request_id.encode())
