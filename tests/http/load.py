"""Senders of webhooks that go on until the server is gone, and what it accepted from them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field

import aiohttp

from tests.http.server_harness import SECRET

SENDERS = 16


@dataclass
class Load:
    """What was answered 202 is in `accepted`; `enough` is set once it is as much as wanted."""

    address: str
    wanted: int
    accepted: set[str] = field(default_factory=set)
    enough: asyncio.Event = field(default_factory=asyncio.Event)
    stop: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        await asyncio.gather(*(self._sender(number) for number in range(SENDERS)))

    async def _sender(self, number: int) -> None:
        async with aiohttp.ClientSession(self.address) as client:
            turn = 0
            with contextlib.suppress(aiohttp.ClientError, ConnectionError):
                while not self.stop.is_set():
                    turn += 1
                    await self._send(client, f"m{number}-{turn}")

    async def _send(self, client: aiohttp.ClientSession, name: str) -> None:
        headers = {"x-word": SECRET, "x-name": name}
        async with client.post("/echo-chamber/webhook", headers=headers, data=name) as answer:
            if answer.status == 202:
                self.accepted.add(name)
        if len(self.accepted) >= self.wanted:
            self.enough.set()
