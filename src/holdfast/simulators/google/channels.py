"""Push channels: opened on a calendar, notified of each change by HTTP POST, stopped or expired."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import random
import re
from collections import deque
from email.utils import format_datetime
from typing import Final, Literal
from urllib.parse import urlsplit

import aiohttp
import msgspec

from holdfast.clock import Clock, from_us
from holdfast.simulators.google.refusals import Refusal

LIFE_S: Final = 7 * 24 * 3_600
_ID: Final = re.compile(r"[A-Za-z0-9\-_+/=]{1,64}")
_RETRIED: Final = frozenset({500, 502, 503, 504})
_ATTEMPTS_MAX: Final = 6
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_AGENT: Final = "APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)"


class ChannelRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A request for a channel; `expiration` is milliseconds since 1970, as a number or as text."""

    id: str = ""
    type: str = ""
    address: str = ""
    token: str = ""
    expiration: int | str = 0
    params: dict[str, str] = {}
    resource_id: str = ""


class SimulatedChannel(msgspec.Struct, kw_only=True, rename="camel"):
    """A channel and its delivery counts."""

    id: str
    resource_id: str
    resource_uri: str
    calendar: str
    client: str
    address: str
    token: str
    expiration_ms: int
    state: Literal["live", "stopped", "expired"] = "live"
    number: int = 0
    delivered: int = 0
    failed: int = 0

    def as_resource(self) -> dict[str, str]:
        answer = {
            "kind": "api#channel",
            "id": self.id,
            "resourceId": self.resource_id,
            "resourceUri": self.resource_uri,
            "expiration": str(self.expiration_ms),
        }
        return answer | ({"token": self.token} if self.token else {})


class PushFault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault for the next pushes: dropped, sent twice, or sent after `delay_s`."""

    act: Literal["drop", "double", "delay"]
    delay_s: float = 0.0


class _Message(msgspec.Struct, frozen=True):
    channel: SimulatedChannel
    state: str
    number: int


class PushChannels:
    """All channels, and their posts in flight; each channel's are sent one after another."""

    def __init__(self, clock: Clock, *, http_on_loopback: bool, life_s: float = LIFE_S) -> None:
        self._clock = clock
        self._http_on_loopback = http_on_loopback
        self._life_ms = int(life_s * 1000)
        self._all: dict[str, SimulatedChannel] = {}
        self._queues: dict[str, asyncio.Queue[_Message]] = {}
        self._live: dict[str, dict[str, SimulatedChannel]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self._random = random.Random(1)
        self.push_faults: deque[PushFault] = deque()

    async def start(self) -> None:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    def clear(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._all.clear()
        self._live.clear()
        self._queues.clear()
        self.push_faults.clear()

    async def join(self) -> None:
        """Return once every push so far was delivered or abandoned."""
        for queue in list(self._queues.values()):
            await queue.join()

    def all(self) -> list[SimulatedChannel]:
        for calendar in list(self._live):
            self._live_channels(calendar)
        return list(self._all.values())

    def _live_channels(self, calendar: str) -> list[SimulatedChannel]:
        """A calendar's live channels, after those whose time is over have left."""
        living = self._live.get(calendar, {})
        for channel in list(living.values()):
            if self._now_ms() >= channel.expiration_ms:
                self._end(channel, "expired")
        return list(living.values())

    def _end(self, channel: SimulatedChannel, state: Literal["stopped", "expired"]) -> None:
        channel.state = state
        del self._live[channel.calendar][channel.id]

    def open(self, request: ChannelRequest, *, calendar: str, client: str, uri: str) -> SimulatedChannel:
        """A new channel; its first message says that it is in sync."""
        self._check(request)
        channel = SimulatedChannel(
            id=request.id,
            resource_id=_resource_id(calendar),
            resource_uri=uri,
            calendar=calendar,
            client=client,
            address=request.address,
            token=request.token,
            expiration_ms=self._expiration_ms(request),
        )
        self._all[channel.id] = channel
        self._live.setdefault(calendar, {})[channel.id] = channel
        queue = self._queues[channel.id] = asyncio.Queue()
        self._tasks.append(asyncio.ensure_future(self._post_all(queue)))
        self._push(channel, "sync")
        return channel

    def stop(self, request: ChannelRequest, *, client: str) -> None:
        """Stop a channel; only the client that opened it can."""
        channel = self._all.get(request.id)
        named = channel is not None and (channel.client, channel.resource_id) == (client, request.resource_id)
        if channel is None or not named or channel not in self._live_channels(channel.calendar):
            raise Refusal(404, "notFound", f"Channel '{request.id}' not found for project 'simulated'")
        self._end(channel, "stopped")

    def notify(self, calendar: str) -> None:
        """Notify every live channel on a changed calendar."""
        for channel in self._live_channels(calendar):
            self._push(channel, "exists")

    def _check(self, request: ChannelRequest) -> None:
        if not _ID.fullmatch(request.id) or len(request.token) > 256:
            raise Refusal(400, "invalid", "Invalid channel id or token.")
        if request.type not in ("web_hook", "webhook"):
            raise Refusal(400, "invalid", f"Unknown channel type: {request.type}")
        address = urlsplit(request.address)
        loopback = self._http_on_loopback and address.scheme == "http" and address.hostname in _LOOPBACK
        if address.scheme != "https" and not loopback:
            message = f"WebHook callback must be HTTPS: {request.address}"
            raise Refusal(400, "push.webhookUrlNotHttps", message)
        if request.id in self._all:
            raise Refusal(400, "channelIdNotUnique", f"Channel id {request.id} not unique")

    def _expiration_ms(self, request: ChannelRequest) -> int:
        now = self._now_ms()
        try:
            requested = int(request.expiration) or now + int(request.params.get("ttl", "0")) * 1000
        except ValueError:
            raise Refusal(400, "invalid", "Invalid expiration.") from None
        if requested < now:
            raise Refusal(400, "invalid", "Channel expiration must be in the future.")
        latest = now + self._life_ms
        return min(requested, latest) if requested > now else latest

    def _push(self, channel: SimulatedChannel, state: str) -> None:
        # Numbers grow, but not by one: a receiver that relies on that is wrong.
        channel.number += 1 if state == "sync" else self._random.randint(1, 5_000)
        self._queues[channel.id].put_nowait(_Message(channel, state, channel.number))

    async def _post_all(self, queue: asyncio.Queue[_Message]) -> None:
        while True:
            message = await queue.get()
            try:
                await self._send(message)
            finally:
                queue.task_done()

    async def _send(self, message: _Message) -> None:
        fault = self.push_faults.popleft() if self.push_faults else None
        if fault is not None and fault.act == "drop":
            return
        if fault is not None and fault.delay_s:
            await self._clock.sleep(fault.delay_s)
        for _ in range(2 if fault is not None and fault.act == "double" else 1):
            await self._deliver(message)

    async def _deliver(self, message: _Message) -> None:
        channel = message.channel
        for attempt in range(_ATTEMPTS_MAX):
            status = await self._post(message)
            if status is not None and status not in _RETRIED:
                break
            await self._clock.sleep(2.0**attempt)
        delivered = status in (102, 200, 201, 202, 204)
        channel.delivered += delivered
        channel.failed += not delivered

    async def _post(self, message: _Message) -> int | None:
        assert self._session is not None
        try:
            async with self._session.post(message.channel.address, headers=_headers(message)) as response:
                return response.status
        except (aiohttp.ClientError, OSError):
            return None

    def _now_ms(self) -> int:
        return self._clock.now_us() // 1000


def _headers(message: _Message) -> dict[str, str]:
    channel = message.channel
    headers = {
        "X-Goog-Channel-ID": channel.id,
        "X-Goog-Channel-Expiration": format_datetime(from_us(channel.expiration_ms * 1000), usegmt=True),
        "X-Goog-Resource-ID": channel.resource_id,
        "X-Goog-Resource-URI": channel.resource_uri,
        "X-Goog-Resource-State": message.state,
        "X-Goog-Message-Number": str(message.number),
        "User-Agent": _AGENT,
        "Content-Length": "0",
    }
    return headers | ({"X-Goog-Channel-Token": channel.token} if channel.token else {})


def _resource_id(calendar: str) -> str:
    """The same for every channel on one calendar."""
    return base64.urlsafe_b64encode(hashlib.sha256(calendar.encode()).digest()[:20]).decode().rstrip("=")
