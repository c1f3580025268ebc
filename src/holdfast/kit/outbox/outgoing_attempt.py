"""One attempt from its signature to its result: what a coroutine would have in its frame."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from holdfast import tracing
from holdfast.kit.outbox.attempt_record import CONTENT_TYPE, METHOD, Header
from holdfast.kit.outbox.endpoint_queue import SETTLE_S, ClaimedDelivery, EndpointQueue
from holdfast.net import (
    Exchange,
    OutgoingRequest,
    ReceiverResponse,
    Sender,
    SendFailure,
    SendResult,
)


class OutgoingAttempt:
    """A delivery that is being sent. `on_end` is called with it and the result, once there is one."""

    __slots__ = ("_on_end", "at", "claimed", "endpoint", "exchange", "headers", "queue", "started_s")

    def __init__(
        self,
        queue: EndpointQueue,
        claimed: ClaimedDelivery,
        on_end: Callable[[OutgoingAttempt, SendResult], None],
        *,
        at: datetime,
        started_s: float,
    ) -> None:
        assert queue.endpoint is not None
        self.queue, self.claimed, self.endpoint = queue, claimed, queue.endpoint
        self._on_end, self.at, self.started_s = on_end, at, started_s
        self.headers: list[Header] = [(CONTENT_TYPE, claimed.delivery.content_type)]
        self.exchange: Exchange | None = None  # set while the sender has it without a task

    def end(self, result: SendResult) -> None:
        self._on_end(self, result)

    def abandon(self) -> None:
        """Close its connection; the result is not wanted any more."""
        if self.exchange is not None:
            self.exchange.abandon(self.end)

    def left_s(self, now: float) -> float:
        """Return for how long it may take: a send must not outlive its lease."""
        return self.claimed.until_s - SETTLE_S - now

    def request(self, now: float) -> OutgoingRequest:
        """Return the signed request, to be sent now."""
        endpoint = self.endpoint
        return OutgoingRequest(
            METHOD, endpoint.url, tuple(self.headers), self.claimed.delivery.body,
            min(endpoint.timeout_s, self.left_s(now)), endpoint.response_bytes_max,
        )  # fmt: skip

    async def send(self, sender: Sender, now: float) -> ReceiverResponse:
        """Send the request by a task, in a span of its delivery's trace where tracing is on."""
        if not tracing.on:
            return await sender.send(self.request(now))
        delivery = self.claimed.delivery
        with tracing.span(
            f"deliver {delivery.event_type}", kind="client", parent=delivery.trace,
            delivery=delivery.id, endpoint=delivery.endpoint_id, attempt=delivery.attempt_count + 1,
        ) as span:  # fmt: skip
            self.headers.append((tracing.HEADER, tracing.traceparent()))
            try:
                response = await sender.send(self.request(now))
            except SendFailure as failure:
                tracing.mark_failed(span, failure.reason)
                raise
            span.set_attribute("http.response.status_code", response.status)
            if response.status >= 400:
                tracing.mark_failed(span, str(response.status))
            return response
