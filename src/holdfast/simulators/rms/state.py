"""State and commands of the simulated revenue-management system."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from holdfast.clock import Clock
from holdfast.simulators.rms.signatures import decode_secret, signature_fault
from holdfast.simulators.server import Command

RECEIVED_MAX: Final = 10_000


class ReceivedMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A received message and its response status."""

    at: datetime
    path: str
    message_id: str
    headers: dict[str, str]
    body: str
    status: int
    fault: str = ""
    repeated: bool = False


class RmsState:
    """Received messages, accepted message ids, and counts."""

    def __init__(self, clock: Clock, *, seed: int = 1) -> None:
        self.clock = clock
        self._seed = seed
        self.clear()

    def clear(self) -> None:
        self.behaviour = Behave()
        self.received: deque[ReceivedMessage] = deque(maxlen=RECEIVED_MAX)
        self.accepted: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self._dice = random.Random(self._seed)

    def receive(self, path: str, headers: Mapping[str, str], *, body: bytes) -> ReceivedMessage:
        """Receive a message; header names are in lower case."""
        fault = self._fault(headers, body)
        status = 401 if fault else self._status()
        message_id = headers.get("webhook-id", "")
        repeated = status == 200 and self.accepted[message_id] > 0
        if status == 200:
            self.accepted[message_id] += 1
        message = ReceivedMessage(
            at=self.clock.now(),
            path=path,
            message_id=message_id,
            headers=dict(headers),
            body=body.decode(errors="replace"),
            status=status,
            fault=fault,
            repeated=repeated,
        )
        self.statuses[status] += 1
        self.received.append(message)
        return message

    def _fault(self, headers: Mapping[str, str], body: bytes) -> str:
        if not self.behaviour.secret:
            return ""
        return signature_fault(headers, body, secret=self.behaviour.secret, now=self.clock.now())

    def _status(self) -> int:
        failing = self._dice.random() < self.behaviour.failure_rate
        return self.behaviour.failure_status if failing else 200

    def counts(self) -> dict[str, object]:
        """Counts of received, distinct accepted, and repeated messages."""
        return {
            "received": sum(self.statuses.values()),
            "accepted": len(self.accepted),
            "repeated": sum(self.accepted.values()) - len(self.accepted),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items())},
        }


class Behave(Command[RmsState], frozen=True):
    """Answer like this from now on: {failureRate, failureStatus, retryAfterS, delayS, secret}.

    A share of `failure_rate` is answered `failure_status`, all after `delay_s`; with a `secret` (or several,
    separated by spaces), a message with a wrong signature is answered 401.
    """

    failure_rate: Annotated[float, Meta(ge=0, le=1)] = 0.0
    failure_status: Annotated[int, Meta(ge=200, le=599)] = 503
    retry_after_s: Annotated[int, Meta(ge=0)] | None = None
    delay_s: Annotated[float, Meta(ge=0, le=600)] = 0.0
    secret: str = ""

    def __post_init__(self) -> None:
        for secret in self.secret.split():
            decode_secret(secret)

    def run(self, state: RmsState) -> object:
        state.behaviour = self
        return self


class ShowReceived(Command[RmsState], frozen=True):
    """The received messages, oldest first: {}."""

    def run(self, state: RmsState) -> object:
        return list(state.received)


class ShowCounts(Command[RmsState], frozen=True):
    """Counts of received, distinct accepted, and repeated messages: {}."""

    def run(self, state: RmsState) -> object:
        return state.counts()
