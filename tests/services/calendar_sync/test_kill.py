"""The service as a real process that is killed, again and again, while calendars change under it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import aiohttp
import msgspec
import pytest

from holdfast.clock import SystemClock
from holdfast.simulators.google import AddPerson, CreateEvent, GoogleSimulator, ListChannels, ShowCalendar
from holdfast.testing import free_port
from tests.kit.eventually import until
from tests.services.calendar_sync.harness import ALICE, BOB, PLAIN, STRANGER, an_hour, as_csv, guests

KILLS = int(os.environ.get("HOLDFAST_TEST_CALENDAR_KILLS", "3"))
SERVE = [sys.executable, "-m", "holdfast", "serve", "--only", "calendar-sync"]


class Served:
    """`holdfast serve` on one store and port, started as often as a test likes."""

    def __init__(self, google: GoogleSimulator, home: Path, url: str) -> None:
        self.port = free_port()
        self._home = home
        self._process: asyncio.subprocess.Process | None = None
        (home / "key.json").write_bytes(msgspec.json.encode(google.service_account()))
        (home / "mappings.csv").write_text(as_csv(PLAIN))
        address = f"http://127.0.0.1:{self.port}"
        table = {
            "service_account": str(home / "key.json"), "mappings": str(home / "mappings.csv"),
            "calendar_url": google.calendar_url, "webhook_url": f"{address}/webhook",
        }  # fmt: skip
        lines = [f"{name} = {json.dumps(value)}" for name, value in table.items()]
        head = [f"{name} = {json.dumps(value)}" for name, value in {
            "home": str(home), "store": url, "public_url": address}.items()]  # fmt: skip
        own = ["[service.calendar_sync]", *lines, "sync_lease_s = 2", "sync_gap_s = 0.1", ""]
        (home / "holdfast.toml").write_text("\n".join([*head, f"port = {self.port}", *own]))

    async def start(self) -> None:
        with (self._home / "log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *SERVE, cwd=self._home, stdout=log, stderr=log
            )
        async with aiohttp.ClientSession() as client, asyncio.timeout(60):
            while True:
                try:
                    async with client.get(f"http://127.0.0.1:{self.port}/health/ready") as answer:
                        if answer.status == 200:
                            return
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.05)

    async def end(self, how: signal.Signals) -> None:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(how)
        await self._process.wait()


@pytest.fixture
async def google() -> AsyncIterator[GoogleSimulator]:
    async with GoogleSimulator(clock=SystemClock(), http_on_loopback=True) as made:
        for person in (ALICE, BOB):
            made.run(AddPerson(email=person))
        yield made


def _attendees(google: GoogleSimulator, calendar: str) -> list[list[str]]:
    shown = google.run(ShowCalendar(calendar=calendar))
    assert isinstance(shown, list)
    return [[guest["email"] for guest in event.get("attendees", [])] for event in shown]


def _whole(google: GoogleSimulator) -> bool:
    """Whether every event has everybody it should."""
    return all(
        event[-1:] == [PLAIN[calendar][0]]
        for calendar in (ALICE, BOB)
        for event in _attendees(google, calendar)
    )


def _live(google: GoogleSimulator) -> list[str]:
    channels: list[object] = google.run(ListChannels())  # type: ignore[assignment]
    return sorted(getattr(one, "calendar", "") for one in channels if getattr(one, "state", "") == "live")


def _patched(google: GoogleSimulator) -> int:
    return sum(call.method == "PATCH" for call in google.calls)


async def test_kills_lose_no_change_and_add_nobody_twice(
    google: GoogleSimulator, one_url: str, tmp_path: Path
) -> None:
    served, chance = Served(google, tmp_path, one_url), random.Random(1)
    # A calendar that is read for the first time is read from today on.
    tomorrow = SystemClock().now() + timedelta(days=1)
    meeting = {**an_hour(tomorrow), "attendees": guests(STRANGER)}
    await served.start()
    try:
        await until(lambda: _live(google) == [ALICE, BOB], within_s=90)
        for _ in range(KILLS):
            for number in range(20):
                calendar = (ALICE, BOB)[number % 2]
                google.run(CreateEvent(calendar=calendar, event=meeting))
            done = _patched(google) + chance.randint(1, 15)
            await until(lambda done=done: _patched(google) >= done, within_s=90)  # type: ignore[misc]
            await served.end(signal.SIGKILL)
            await served.start()
        await until(lambda: _whole(google), within_s=90)
        assert _live(google) == [ALICE, BOB]
        for calendar in (ALICE, BOB):
            found = _attendees(google, calendar)
            assert found == [[STRANGER, PLAIN[calendar][0]]] * (10 * KILLS)
    finally:
        await served.end(signal.SIGTERM)
