"""What the sender is given to send, and how its failures are told."""

from __future__ import annotations

import pytest

from holdfast.net import AddressGuard, OutgoingRequest, PoolLimits, RawSender, SendFailure

HEADERS = (("content-type", "application/json"), ("webhook-id", "evt-1"))


def outgoing(url: str, *, timeout_s: float = 5.0, response_bytes_max: int = 65_536) -> OutgoingRequest:
    return OutgoingRequest("POST", url, HEADERS, b'{"a":1}', timeout_s, response_bytes_max)


def local(limits: PoolLimits | None = None) -> RawSender:
    return RawSender(AddressGuard(allow=["127.0.0.1"]), limits=limits)


async def failure_of(sender: RawSender, request: OutgoingRequest) -> str:
    with pytest.raises(SendFailure) as caught:
        await sender.send(request)
    return caught.value.reason
