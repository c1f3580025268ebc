"""From a change in a calendar to its new attendee, and notifications taken in at a steady rate.

The service is a real process of its own, and Google is simulated here, over real HTTP both ways.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from bench.measure import Goal, Place, Ways, Workload
from holdfast.clock import SystemClock
from holdfast.kit.vault import Vault, new_key
from holdfast.providers.google_calendar import channel_token
from holdfast.services.calendar_sync.sync.engine import CHANNEL_KEY
from holdfast.simulators.google import AddPerson, CreateEvent, GoogleSimulator, ListChannels, ShowCalendar
from holdfast.testing import free_port

PEOPLE = [f"person-{number}@hoge.jp" for number in range(20)]
CHANGES, QUICK_CHANGES = 120, 40
PER_S = 20
NOTICES, QUICK_NOTICES = 2_000, 500
NOTICES_PER_S = 500
PATCHED_S = 2.0
ACCEPTED_MS = 50.0


class _Scene:
    """The simulated Google, the service beside it, and its keys."""

    def __init__(self, google: GoogleSimulator, home: Path, url: str) -> None:
        self.google, self.home = google, home
        self.keys, self.address = new_key("bench"), f"http://127.0.0.1:{free_port()}"
        mappings = [f"{one},{one.replace('hoge', 'fuga')}" for one in PEOPLE]
        (home / "mappings.csv").write_text("\n".join([*mappings, ""]))
        (home / "key.json").write_bytes(msgspec.json.encode(google.service_account()))
        table = {
            "service_account": str(home / "key.json"), "mappings": str(home / "mappings.csv"),
            "calendar_url": google.calendar_url, "webhook_url": f"{self.address}/webhook",
        }  # fmt: skip
        top = {"home": str(home), "store": url, "public_url": self.address, "keys": self.keys}
        lines = [f"{name} = {json.dumps(value)}" for name, value in top.items()]
        lines += [f"port = {self.address.rpartition(':')[2]}", "[services.calendar_sync]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in table.items()]
        (home / "holdfast.toml").write_text("\n".join([*lines, ""]))

    def live(self) -> list[Any]:
        channels: Any = self.google.run(ListChannels())
        return [one for one in channels if one.state == "live"]

    def attendees(self, calendar: str) -> dict[str, int]:
        shown: Any = self.google.run(ShowCalendar(calendar=calendar))
        return {event["id"]: len(event.get("attendees", [])) for event in shown}


@asynccontextmanager
async def _scene(place: Place, engine: str) -> AsyncIterator[_Scene]:
    async with contextlib.AsyncExitStack() as stack:
        google = GoogleSimulator(clock=SystemClock(), http_on_loopback=True)
        await stack.enter_async_context(google)
        for person in PEOPLE:
            google.run(AddPerson(email=person))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-bench-")))
        scene = _Scene(google, home, place.url(engine))
        with (home / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "holdfast", "serve", "--only", "calendar-sync", cwd=home, stdout=log,
                stderr=log,
            )  # fmt: skip
        try:
            async with asyncio.timeout(120):
                while len(scene.live()) < len(PEOPLE):  # noqa: ASYNC110 - another process opens them
                    await asyncio.sleep(0.05)
            yield scene
        finally:
            process.send_signal(signal.SIGTERM)
            await process.wait()


async def _limit(limit: float) -> float:
    return limit


@asynccontextmanager
async def patching(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Create events at a steady rate on twenty calendars, until each has its secondary address."""
    async with _scene(place, engine) as scene:
        changes = place.scale(CHANGES, QUICK_CHANGES)

        async def ours() -> float:
            made: dict[str, float] = {}
            took: list[float] = []
            for number in range(changes):
                event = _event(scene, PEOPLE[number % len(PEOPLE)])
                made[event] = time.perf_counter()
                await _gather_up(scene, made, took, for_s=1 / PER_S)
            async with asyncio.timeout(60):
                while made:
                    await _gather_up(scene, made, took, for_s=0.01)
            return statistics.quantiles(took, n=20)[-1]

        yield Ways(ours, lambda: _limit(PATCHED_S))


def _event(scene: _Scene, calendar: str) -> str:
    start = SystemClock().now() + timedelta(days=30)
    times = {name: {"dateTime": at.isoformat(), "timeZone": "UTC"} for name, at in
             (("start", start), ("end", start + timedelta(hours=1)))}  # fmt: skip
    made: Any = scene.google.run(CreateEvent(calendar=calendar, event={"summary": "Planning", **times}))
    return f"{calendar} {made['id']}"


async def _gather_up(scene: _Scene, made: dict[str, float], took: list[float], *, for_s: float) -> None:
    """Poll for patched events for a while."""
    end = time.perf_counter() + for_s
    while True:
        for calendar in {name.partition(" ")[0] for name in made}:
            for event, guests in scene.attendees(calendar).items():
                if guests and f"{calendar} {event}" in made:
                    took.append(time.perf_counter() - made.pop(f"{calendar} {event}"))
        if time.perf_counter() >= end:
            return
        await asyncio.sleep(0.005)


@asynccontextmanager
async def accepting(place: Place, engine: str) -> AsyncIterator[Ways]:
    """Notifications at a steady rate, each answered once it is durable."""
    async with _scene(place, engine) as scene, aiohttp.ClientSession(scene.address) as client:
        notices = place.scale(NOTICES, QUICK_NOTICES)
        key = next(iter(Vault.from_settings(scene.keys).secrets(CHANNEL_KEY).values()))
        channels = scene.live()
        numbers = iter(range(1_000_000, 9_000_000))

        async def post(channel: Any, took: list[float]) -> None:
            headers = {
                "X-Goog-Channel-ID": channel.id, "X-Goog-Channel-Token": channel_token(key, channel.id),
                "X-Goog-Resource-ID": channel.resource_id, "X-Goog-Resource-State": "exists",
                "X-Goog-Message-Number": str(next(numbers)),
            }  # fmt: skip
            began = time.perf_counter()
            async with client.post("/webhook", headers=headers) as answer:
                assert answer.status == 200, await answer.text()
            took.append((time.perf_counter() - began) * 1000)

        async def ours() -> float:
            took: list[float] = []
            began = time.perf_counter()
            async with asyncio.TaskGroup() as group:
                for number in range(notices):
                    group.create_task(post(channels[number % len(channels)], took))
                    ahead_s = began + number / NOTICES_PER_S - time.perf_counter()
                    if ahead_s > 0:
                        await asyncio.sleep(ahead_s)
            return statistics.quantiles(took, n=100)[-1]

        yield Ways(ours, lambda: _limit(ACCEPTED_MS))


ENGINES = ("sqlite full", "postgres")
WORKLOADS = [
    Workload(
        name="calendar_sync: change to attendee patched, p95 at 20/s", engines=ENGINES, unit="s",
        goal=Goal(1.0, at_most=True), other_name="limit", open=patching, turns=1,
    ),
    Workload(
        name="calendar_sync: notification accepted, p99 at 500/s", engines=ENGINES, unit="ms",
        goal=Goal(1.0, at_most=True), other_name="limit", open=accepting, turns=1,
    ),
]  # fmt: skip
