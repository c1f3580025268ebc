"""One attempt of a delivery: the request as it was sent, the response, and a command that repeats it."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from holdfast.errors import NotFoundError
from holdfast.kit.outbox import Attempt, Delivery
from holdfast.kit.outbox.attempt_record import METHOD, Header, read_headers, recorded_url, request_headers
from holdfast.operations.deliveries import get, payload_text
from holdfast.operations.outboxes import deliveries_in, outbox_named
from holdfast.plural import plural
from holdfast.runtime import Runtime

# One argument of a command takes 128 KiB on Linux.
_ARGUMENT_BYTES_MAX: Final = 100_000
# What curl adds by itself.
_UNWANTED: Final = ("accept", "expect", "user-agent")


class HeaderRow(msgspec.Struct, frozen=True):
    name: str
    value: str


class AttemptRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The request; secrets in its URL and headers are `***`. `body` is text, or base64 where it is none."""

    method: str
    url: str
    headers: list[HeaderRow]
    body: str
    body_is_base64: bool


class AttemptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response: the first KB of its headers and of its body."""

    status: int
    headers: list[HeaderRow]
    body: str


class AttemptDetail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Attempt `number` of `count`, the first one is 1.

    Without a response `failure` is the reason as a word and `message` in words. `curl` repeats the request
    with the signature and the time it had, so a receiver that checks the time refuses it after some minutes;
    a replay is signed anew. An attempt is not `complete` where an earlier release made it: its URL is the
    endpoint's of now, and it has no signature and no response headers.
    """

    delivery_id: str
    tenant_id: str
    outbox: str
    number: int
    count: int
    at: datetime
    latency_ms: int
    complete: bool
    request: AttemptRequest
    response: AttemptResponse | None
    failure: str | None
    message: str
    curl: str


async def get_attempt(
    runtime: Runtime, tenant_id: str, outbox: str, delivery_id: str, *, number: int | None = None
) -> AttemptDetail:
    """One attempt of a delivery, the last unless numbered; NotFoundError where there is none."""
    delivery = await get(runtime, tenant_id, outbox, delivery_id)
    attempts = await deliveries_in(runtime, tenant_id, outbox).attempts(delivery)
    number = len(attempts) if number is None else number
    if not 1 <= number <= len(attempts):
        raise NotFoundError(
            f"delivery {delivery_id!r} has {plural(len(attempts), 'attempt')}, and no number {number}"
        )
    attempt = attempts[number - 1]
    url = attempt.url or await _endpoint_url(runtime, outbox, delivery)
    headers = request_headers(delivery, attempt)
    body, coded = payload_text(delivery.body)
    return AttemptDetail(
        delivery_id=delivery_id, tenant_id=delivery.tenant_id, outbox=outbox, number=number,
        count=len(attempts), at=attempt.at,
        latency_ms=attempt.latency_ms, complete=bool(attempt.url),
        request=AttemptRequest(
            method=METHOD, url=url, headers=_rows(headers), body=body, body_is_base64=coded
        ),
        response=_response(attempt), failure=attempt.failure,
        message=attempt.excerpt if attempt.failure else "",
        curl=curl_command(METHOD, url, headers=headers, body=delivery.body),
    )  # fmt: skip


def _response(attempt: Attempt) -> AttemptResponse | None:
    if attempt.status is None:
        return None
    headers = _rows(read_headers(attempt.response_headers))
    return AttemptResponse(status=attempt.status, headers=headers, body=attempt.excerpt)


def _rows(headers: list[Header]) -> list[HeaderRow]:
    return [HeaderRow(name, value) for name, value in headers]


async def _endpoint_url(runtime: Runtime, outbox: str, delivery: Delivery) -> str:
    models = outbox_named(runtime, outbox).models
    found = await runtime.store.tenant(delivery.tenant_id).get(models.endpoint, delivery.endpoint_id)
    return "" if found is None else recorded_url(found.doc.url)


def curl_command(method: str, url: str, *, headers: Iterable[tuple[str, str]], body: bytes) -> str:
    """A command line that repeats a request byte for byte; a body that is no text is piped in as base64.

    Example: `curl_command("POST", "https://a.example/hook", headers=[("webhook-id", "evt-1")], body=b"{}")`
    """
    # An empty header is written with a semicolon; with a colon, curl leaves it out.
    sent = [f"{name}: {value}" if value else f"{name};" for name, value in headers]
    arguments = ["--globoff", "--include", "--request", method]
    for line in (*sent, *(f"{name}:" for name in _UNWANTED)):
        arguments += ["--header", line]
    text = _plain_text(body)
    # Not --data-binary: that one reads a file where the body begins with @.
    arguments += ["--data-binary", "@-"] if text is None else ["--data-raw", text]
    command = shlex.join(["curl", *arguments, url])
    if text is not None:
        return command
    return f"printf %s {base64.b64encode(body).decode()} | base64 --decode | {command}"


def _plain_text(body: bytes) -> str | None:
    """The body as an argument; None where a shell or a terminal could change it."""
    if len(body) > _ARGUMENT_BYTES_MAX:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return text if text.replace("\n", "").isprintable() else None
