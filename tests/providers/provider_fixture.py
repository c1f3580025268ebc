"""A simulated Google with a few people in it, and clients that speak for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import msgspec

from holdfast.clock import Clock, SystemClock
from holdfast.providers.google_calendar import CALENDAR_SCOPE, GoogleCalendar
from holdfast.providers.google_oauth import ServiceAccount, ServiceAccountKey
from holdfast.providers.google_sheets import SHEETS_READ_SCOPE, GoogleSheets
from holdfast.providers.rest import CallLimits
from holdfast.simulators.google import AddPerson, CreateEvent, GoogleSimulator
from holdfast.testing import ManualClock

ALICE, BOB = "alice@hoge.jp", "bob@hoge.jp"
START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class HastyClock(ManualClock):
    """Whoever sleeps on it wakes at once, as late as they wished; what they wished is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.tick(seconds)


class SimulatorClock:
    """The time of a test's clock for a simulator: its waits neither count as the client's nor move time."""

    def __init__(self, clock: HastyClock) -> None:
        self.now, self.now_us, self.monotonic = clock.now, clock.now_us, clock.monotonic
        self._clock = clock

    async def sleep(self, seconds: float) -> None:
        await ManualClock.sleep(self._clock, seconds)


class Setting:
    """The simulator, a session, and clients made for whoever is named."""

    def __init__(self, google: GoogleSimulator, session: aiohttp.ClientSession, clock: Clock) -> None:
        self.google = google
        self.session = session
        self.clock = clock
        self.key_file = google.service_account()
        self.account = ServiceAccount(session, self.key, clock=clock)

    @property
    def key(self) -> ServiceAccountKey:
        return ServiceAccountKey.parse(msgspec.json.encode(self.key_file))

    def calendar(self, email: str = ALICE, *, limits: CallLimits = CallLimits()) -> GoogleCalendar:
        tokens = self.account.tokens([CALENDAR_SCOPE], subject=email)
        url = self.google.calendar_url
        return GoogleCalendar(self.session, tokens, clock=self.clock, base_url=url, limits=limits)

    def sheets(self) -> GoogleSheets:
        tokens = self.account.tokens([SHEETS_READ_SCOPE])
        return GoogleSheets(self.session, tokens, clock=self.clock, base_url=self.google.sheets_url)

    def event(self, email: str = ALICE, **fields: Any) -> dict[str, Any]:
        """Somebody makes an event; it as it stands on their calendar."""
        made = self.google.run(CreateEvent(calendar=email, event=an_hour() | fields))
        assert isinstance(made, dict)
        return made


def an_hour(start: datetime = START, zone: str = "Asia/Tokyo") -> dict[str, Any]:
    end = start + timedelta(hours=1)
    return {
        "summary": "Planning",
        "start": {"dateTime": start.isoformat(), "timeZone": zone},
        "end": {"dateTime": end.isoformat(), "timeZone": zone},
    }


def guests(*emails: str) -> list[dict[str, str]]:
    return [{"email": email} for email in emails]


@asynccontextmanager
async def a_setting(
    clock: Clock | None = None, *, simulator_clock: Clock | None = None
) -> AsyncIterator[Setting]:
    """Alice and Bob with calendars, on a clock of the test's (or the machine's)."""
    clock = clock or SystemClock()
    google = GoogleSimulator(clock=simulator_clock or clock, http_on_loopback=True)
    async with google, aiohttp.ClientSession() as session:
        google.run(AddPerson(email=ALICE, time_zone="Asia/Tokyo"))
        google.run(AddPerson(email=BOB))
        yield Setting(google, session, clock)
