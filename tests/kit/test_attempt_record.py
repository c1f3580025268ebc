"""What an attempt keeps of its request and response: all headers, no secret, never too much."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from holdfast.kit.outbox import OUTBOX_MODELS, Delivery
from holdfast.kit.outbox.attempt_record import read_headers, recorded_headers, recorded_url, request_headers
from holdfast.kit.outbox.models import ATTEMPTS_IN_DELIVERY_MAX
from holdfast.kit.outbox.outbox import BODY_BYTES_MAX
from holdfast.kit.outbox.outcome import record_attempt
from holdfast.model.limits import DOCUMENT_BYTES_MAX
from holdfast.net import ReceiverResponse, SendFailure
from holdfast.store import Store
from tests.kit.outbox_fixture import answer, dispatching, endpoint_at, receiving, send, state_is

DOCUMENTS = list(OUTBOX_MODELS.all)
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ADDED_BY_THE_SENDER = ("host", "content-length")


def a_delivery(body: bytes = b"{}") -> Delivery:
    return Delivery(
        id="e~ep", event_id="e", endpoint_id="ep", event_type="t", body=body, occurred_at=NOW, created_at=NOW
    )


async def test_an_attempt_tells_the_headers_that_were_sent_and_answered(live_store: Store) -> None:
    said = answer(202, "x-request-id: r-7", "set-cookie: sid=1", "location: https://h.example/?key=9")

    def own(delivery: Delivery, endpoint: object) -> list[tuple[str, str]]:
        return [("x-event", delivery.event_id), ("authorization", "Basic dTpw")]

    async with receiving(lambda _: said) as receiver, dispatching(live_store, headers=own):
        await send(live_store, await endpoint_at(live_store, receiver.url()), "evt.1")
        found = await state_is(live_store, "evt.1", "delivered")
    (request,), (attempt,) = receiver.requests, found.attempts
    sent = {name: value for name, value in request.headers.items() if name not in ADDED_BY_THE_SENDER}
    assert dict(request_headers(found, attempt)) == sent | {"authorization": "***"}
    assert sent["webhook-id"] == "evt%2E1"
    assert attempt.url == receiver.url().replace("x=1", "x=***")
    assert dict(read_headers(attempt.response_headers)) == {
        "content-length": "0", "x-request-id": "r-7", "set-cookie": "***",
        "location": "https://h.example/?key=***",
    }  # fmt: skip


def test_what_was_not_signed_was_not_sent() -> None:
    delivery = a_delivery()
    record_attempt(delivery, SendFailure("unsigned", "no secret"), at=NOW, latency_s=0, url="https://h.example",
                   headers=[("content-type", "application/json")])  # fmt: skip
    assert request_headers(delivery, delivery.attempts[0]) == []


def test_headers_from_outside_are_cleaned_and_cut() -> None:
    assert read_headers(recorded_headers([("a", "one\x00two"), ("X-Api-Key", "k"), ("empty", "")])) == [
        ("a", "one\ufffdtwo"), ("X-Api-Key", "***"), ("empty", ""),
    ]  # fmt: skip
    assert len(recorded_headers([("long", "x" * 20_000)])) == 1_024
    assert recorded_url("https://u:p@h.example/a?token=t#f") == "https://***@h.example/a?token=***#f"
    assert len(recorded_url("https://h.example/" + "a" * 3_000)) == 500


def test_the_largest_delivery_with_the_most_that_attempts_record_is_still_a_document() -> None:
    delivery = a_delivery(b"\xff" * BODY_BYTES_MAX)
    headers = {f"h{number}": "\xe9" * 1_000 for number in range(20)}
    said = ReceiverResponse(500, headers, "\u20ac".encode() * 1_024, 1.0)
    for _ in range(ATTEMPTS_IN_DELIVERY_MAX + 1):
        record_attempt(
            delivery, said, at=NOW, latency_s=1, url="https://h.example/" + "\u20ac" * 480,
            headers=list(headers.items()),
        )  # fmt: skip
    assert len(msgspec.json.encode(delivery)) < DOCUMENT_BYTES_MAX
