"""Webhook deliveries: signed, sent once each, kept in a log, sent again only when somebody asks."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import uuid
from collections import deque
from datetime import datetime
from typing import Any, Final, Literal

import aiohttp
import msgspec

from holdfast.clock import Clock
from holdfast.simulators.github.refusals import ApiRefusal

SEND_S_MAX: Final = 10.0
LOG_MAX: Final = 5_000
REASONS: Final = {0: "failed to connect to host"}


class RecordedDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt to send an event; `guid` is the same for every attempt."""

    id: int
    guid: str
    delivered_at: datetime
    redelivery: bool
    duration: float
    status: str
    status_code: int
    event: str
    action: str | None
    installation_id: int | None
    repository_id: int | None
    body: bytes


class DeliveryFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault for the next deliveries: lost (logged as failed), sent twice, or held until the next ones."""

    act: Literal["drop", "double", "hold"]


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event for the App's webhook."""

    name: str
    body: bytes
    action: str | None = None
    installation_id: int | None = None
    repository_id: int | None = None
    guid: str = ""


class HookDeliveries:
    """The App's webhook: sends events in order, and logs what became of each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.faults: deque[DeliveryFault] = deque()
        self._session: aiohttp.ClientSession | None = None
        self._sending: asyncio.Task[None] | None = None
        self._queue: asyncio.Queue[tuple[HookEvent, bool]] = asyncio.Queue()
        self.clear()

    def clear(self) -> None:
        self.url = self.secret = ""
        self.log: deque[RecordedDelivery] = deque(maxlen=LOG_MAX)  # newest first
        self._held: list[HookEvent] = []
        self._next_id = 12_345_678
        self.faults.clear()

    async def start(self) -> None:
        timeout = aiohttp.ClientTimeout(total=SEND_S_MAX)
        self._session = aiohttp.ClientSession(timeout=timeout)
        self._sending = asyncio.create_task(self._send_all())

    async def close(self) -> None:
        assert self._sending is not None
        assert self._session is not None
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        await self._session.close()

    async def join(self) -> None:
        """Return once everything so far was sent."""
        await self._queue.join()

    def send(self, event: HookEvent) -> None:
        """Queue an event; without an address nothing is sent, as for an App without a webhook."""
        if not self.url:
            return
        event = msgspec.structs.replace(event, guid=event.guid or str(uuid.uuid4()))
        fault = self.faults.popleft() if self.faults else None
        if fault is not None and fault.act == "hold":
            self._held.append(event)
            return
        if fault is not None and fault.act == "drop":
            self._record(event, status=0, duration_s=0.0, redelivery=False)
            return
        for one in [event, *([event] if fault is not None else []), *self._held]:
            self._queue.put_nowait((one, False))
        self._held.clear()

    def redeliver(self, delivery_id: int) -> None:
        """Send an event of the log again."""
        found = self.find(delivery_id)
        event = HookEvent(
            name=found.event, body=found.body, action=found.action, installation_id=found.installation_id,
            repository_id=found.repository_id, guid=found.guid,
        )  # fmt: skip
        self._queue.put_nowait((event, True))

    def find(self, delivery_id: int) -> RecordedDelivery:
        found = next((one for one in self.log if one.id == delivery_id), None)
        if found is None:
            raise ApiRefusal(404)
        return found

    async def _send_all(self) -> None:
        while True:
            event, redelivery = await self._queue.get()
            try:
                began_s = self._clock.monotonic()
                status = await self._post(event)
                took_s = self._clock.monotonic() - began_s
                self._record(event, status=status, duration_s=took_s, redelivery=redelivery)
            finally:
                self._queue.task_done()

    async def _post(self, event: HookEvent) -> int:
        assert self._session is not None
        try:
            async with self._session.post(self.url, data=event.body, headers=self._headers(event)) as answer:
                return answer.status
        except (aiohttp.ClientError, OSError):
            return 0

    def _headers(self, event: HookEvent) -> dict[str, str]:
        digest = hmac.new(self.secret.encode(), event.body, hashlib.sha256).hexdigest()
        return {
            "Content-Type": "application/json", "User-Agent": "GitHub-Hookshot/simulated",
            "X-GitHub-Delivery": event.guid, "X-GitHub-Event": event.name,
            "X-GitHub-Hook-Installation-Target-Type": "integration",
            "X-Hub-Signature-256": f"sha256={digest}",
        }  # fmt: skip

    def _record(self, event: HookEvent, *, status: int, duration_s: float, redelivery: bool) -> None:
        self._next_id += 1
        text = "OK" if 200 <= status < 400 else REASONS.get(status, f"Invalid HTTP Response: {status}")
        self.log.appendleft(RecordedDelivery(
            id=self._next_id, guid=event.guid, delivered_at=self._clock.now(), redelivery=redelivery,
            duration=round(duration_s, 2), status=text, status_code=status, event=event.name,
            action=event.action, installation_id=event.installation_id, repository_id=event.repository_id,
            body=event.body,
        ))  # fmt: skip


def encode_event(payload: dict[str, Any]) -> bytes:
    return msgspec.json.encode(payload)
