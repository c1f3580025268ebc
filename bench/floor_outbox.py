"""The outbox by hand, under our promises: the floor of the outbox from end to end.

Straight lines for one endpoint on our tables, indexes and documents; none of our code but sender, signing
and, on PostgreSQL, the statement's text. What it keeps: a delivery is validated by decoding what was encoded,
and created as claimed (owner, fence, lease) with a version; other processes are notified of each commit; an
endpoint's state, concurrency, circuit and rate are looked at before a send, and no send outlives its lease;
the attempt is recorded as ours is, cleaned and masked, and settles the delivery by an update under fence and
state whose outcome is known for each; on SQLite checkpoints are made beside the writer.

What it leaves out: any other answer than success (it ends the run), retries, dead letters, order, rates and
several endpoints; checks of fields that it fills itself, and the validation of the patch that settles; limits
of sizes but the body's; faults of single documents, which fail their batch; SQLite's mark of the newest
commit; deliveries for which the dispatcher has no room.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import NamedTuple, Protocol

import msgspec

from holdfast import ids
from holdfast.kit.outbox import Sign
from holdfast.net import OutgoingRequest, ReceiverResponse, Sender, SendResult

CONCURRENCY, HELD_MAX = 100, 2_000
BODY_BYTES_MAX = 262_144
LEASE_S, TIMEOUT_S, SETTLE_S = 30.0, 5.0, 1.0
OWNER = "floor"
_LEASE = timedelta(seconds=LEASE_S)
_ENCODE = msgspec.json.Encoder().encode
_UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


class FloorAttempt(msgspec.Struct, rename="camel", omit_defaults=True):
    """An attempt as it is stored."""

    at: datetime
    latency_ms: int
    fence: int
    status: int | None = None
    failure: str | None = None
    excerpt: str = ""
    url: str = ""
    request_headers: str = ""
    response_headers: str = ""


class FloorDelivery(msgspec.Struct, rename="camel"):
    """A delivery as it is stored."""

    id: str
    tenant_id: str
    event_id: str
    endpoint_id: str
    event_type: str
    body: bytes
    occurred_at: datetime
    created_at: datetime
    content_type: str = "application/json"
    status: str = "pending"
    reason: str = ""
    attempt_count: int = 0
    replay_count: int = 0
    next_attempt_at: datetime | None = None
    last_attempt_at: datetime | None = None
    last_status: int | None = None
    finished_at: datetime | None = None
    fence: int = 0
    owner: str | None = None
    attempts: list[FloorAttempt] = []
    attempt_chunks: int = 0
    trace: str = ""


class _Settled(msgspec.Struct, rename="camel"):
    """The fields that an attempt changes, in the order in which ours are stored."""

    status: str
    owner: str | None
    next_attempt_at: datetime | None
    reason: str
    attempts: tuple[FloorAttempt, ...]
    attempt_count: int
    last_attempt_at: datetime
    last_status: int
    finished_at: datetime


# What the encoder made of bytes is valid, so the body is not decoded.
_UNREAD = msgspec.defstruct("_Unread", [
    (field.name, msgspec.Raw if field.name == "body" else field.type, msgspec.field(default=field.default))
    for field in msgspec.structs.fields(FloorDelivery)
], rename="camel", kw_only=True)  # fmt: skip
VALIDATE = msgspec.json.Decoder(_UNREAD).decode
DECODE = msgspec.json.Decoder(FloorDelivery).decode


class Settlement(NamedTuple):
    """What settles one delivery."""

    key: str
    patch: bytes
    finished_at: datetime
    fence: int


class Claimed(NamedTuple):
    """A delivery and when its lease ends by the monotonic clock."""

    delivery: FloorDelivery
    until_s: float


class FloorStore(Protocol):
    """The deliveries' table of one engine."""

    def insert(self, delivery: FloorDelivery, body: bytes) -> asyncio.Future[None]: ...
    def settle(self, settlement: Settlement) -> None: ...
    async def claim(self, limit: int) -> list[FloorDelivery]: ...
    async def watch(self, wake: Callable[[], None]) -> None: ...
    async def close(self) -> None: ...

    settled: int


def new_delivery(body: bytes, *, owner: str | None) -> tuple[FloorDelivery, bytes]:
    """Return a valid delivery and its JSON; with an owner, it is claimed."""
    if len(body) > BODY_BYTES_MAX:
        raise ValueError("the body is too long")
    now, event_id = datetime.now(UTC), ids.ulid()
    delivery = FloorDelivery(
        f"{event_id}~ep", "-", event_id, "ep", "thing.made", body, now, now, "application/json",
        "sending" if owner else "pending", "", 0, 0, now + _LEASE if owner else now, None, None, None,
        1 if owner else 0, owner,
    )  # fmt: skip
    encoded = _ENCODE(delivery)
    VALIDATE(encoded)
    return delivery, encoded


class FloorOutbox:
    """Sends what is put out in this process or, with `claims`, what others put out."""

    def __init__(self, store: FloorStore, sender: Sender, *, url: str, sign: Sign, claims: bool) -> None:
        self.store, self._sender, self._url, self._sign = store, sender, url, sign
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Claimed] = deque()
        self._committed = False  # something waits for the next iteration
        self._in_flight = self._reserved = self._failures = self._reported = 0
        self._active, self._closed_until = True, 0.0
        self._rate: float | None = None
        self._texts: dict[tuple[tuple[str, str], ...], str] = {}
        self._wake = asyncio.Event()
        self._claims = claims
        loops = [self._claim(), self.store.watch(self._wake.set)] if claims else []
        self._tasks = [asyncio.create_task(one) for one in loops]

    async def put_out(self, body: bytes) -> None:
        now_s = time.monotonic()
        held = len(self._waiting) + self._in_flight + self._reserved
        has_room = self._active and not self._failures and now_s >= self._closed_until
        if not has_room or held >= HELD_MAX:
            raise AssertionError("the benchmark has more callers than the endpoint has room for")
        delivery, encoded = new_delivery(body, owner=OWNER)
        self._reserved += 1
        try:
            await self.store.insert(delivery, encoded)
        finally:
            self._reserved -= 1
        self._waiting.append(Claimed(delivery, now_s + LEASE_S))
        if not self._committed:
            self._committed = True
            self._loop.call_soon(self._send_committed)

    async def newly_settled(self) -> int:
        """The number settled since the last call."""
        before, self._reported = self._reported, self.store.settled
        return self._reported - before

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.store.close()

    async def _claim(self) -> None:
        while True:
            self._wake.clear()
            # Not for every free place: a claim is a commit.
            free = 2 * CONCURRENCY - len(self._waiting) - self._in_flight
            until_s = time.monotonic() + LEASE_S
            claimed = await self.store.claim(free) if free >= CONCURRENCY // 2 else []
            self._waiting.extend([Claimed(one, until_s) for one in claimed])
            self._send_waiting()
            if not claimed:
                await self._wake.wait()

    def _send_committed(self) -> None:
        self._committed = False
        self._send_waiting()

    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting and self._in_flight < CONCURRENCY:
            now_s = time.monotonic()
            closed = not self._active or self._failures or now_s < self._closed_until
            if closed or self._rate is not None or waiting[0].until_s - SETTLE_S - TIMEOUT_S < now_s:
                raise AssertionError("no limit holds back a benchmark")
            self._in_flight += 1
            self._start(waiting.popleft().delivery, now_s)

    def _start(self, delivery: FloorDelivery, now_s: float) -> None:
        at = datetime.now(UTC)
        signed = self._sign(delivery.event_id, int(at.timestamp()), delivery.body)
        headers = (("content-type", delivery.content_type), *signed)
        request = OutgoingRequest("POST", self._url, headers, delivery.body, TIMEOUT_S, 65_536)
        end = partial(self._end, delivery, signed, at, now_s)
        if self._sender.start(request, end) is None:
            self._tasks.append(asyncio.create_task(self._send_by_task(request, end)))

    async def _send_by_task(self, request: OutgoingRequest, end: Callable[[SendResult], None]) -> None:
        end(await self._sender.send(request))

    def _end(
        self, delivery: FloorDelivery, signed: Sequence[tuple[str, str]], at: datetime, started_s: float,
        result: SendResult,
    ) -> None:  # fmt: skip
        if not isinstance(result, ReceiverResponse) or not 200 <= result.status < 300:
            raise AssertionError(f"the receiver failed: {result}")
        now_s, now = time.monotonic(), datetime.now(UTC)
        attempt = FloorAttempt(
            at, round((now_s - started_s) * 1_000), delivery.fence, result.status, None,
            self._text(result.excerpt), self._url,
            self._headers(tuple(signed[2:])), self._response_headers(tuple(result.headers.items())),
        )  # fmt: skip
        patch = _ENCODE(_Settled("delivered", None, None, "", (attempt,), 1, at, result.status, now))
        self.store.settle(Settlement(delivery.id, patch, now, delivery.fence))
        self._in_flight -= 1
        if self._waiting:
            self._send_waiting()
        if self._claims and len(self._waiting) + self._in_flight == CONCURRENCY:
            self._wake.set()

    def _response_headers(self, headers: tuple[tuple[str, str], ...]) -> str:
        text = self._texts.get(headers)
        if text is None:
            text = self._texts[headers] = self._headers(headers)
        return text

    def _headers(self, headers: tuple[tuple[str, str], ...]) -> str:
        text = "\n".join([f"{name}: {value}" for name, value in headers])
        if "://" in text:
            raise AssertionError("no header of the benchmark has a URL")
        return self._text(text)

    def _text(self, text: str | bytes) -> str:
        decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
        cut = decoded[:1_024]
        return cut if cut.isprintable() else _UNFIT.sub("\ufffd", cut)
