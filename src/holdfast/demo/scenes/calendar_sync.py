"""Calendars of a simulated Google: people's second addresses appear on their meetings by themselves."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.demo.scene import Control, Fact, Scene, Stage
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.ids import ulid
from holdfast.kit import NO_TENANT
from holdfast.model.access import SERVICE
from holdfast.services.calendar_sync.operations import CalendarSync
from holdfast.simulators.google import (
    AddPerson,
    CreateEvent,
    DeleteEvent,
    ExpireSyncTokens,
    GoogleSimulator,
    Pushes,
    Restore,
    RevokeAccess,
    SetSheet,
    ShowCalendar,
    UpdateEvent,
)

SHEET: Final = "demo-mappings"
KEY_FILE: Final = "simulated-google.json"
ALICE, BOB, CAROL = "alice@hoge.jp", "bob@hoge.jp", "carol@hoge.jp"
PEOPLE: Final = {ALICE: "alice@fuga.jp", BOB: "bob@fuga.jp", CAROL: "carol@fuga.jp, carol@piyo.jp"}
CUSTOMER: Final = "buyer@example.com"
LIVE: Final = "demolive"  # what the ids of passing meetings begin with
LIVE_MAX: Final = 8
_TITLES: Final = ("Customer call", "Design review", "Budget", "Interview", "Retrospective", "Handover")


def settings(world: SimulatorSet) -> Mapping[str, Any]:
    """A domain with three people, their calendars and the sheet of mappings; a key for the service."""
    google = world.the(GoogleSimulator)
    for email in PEOPLE:
        google.run(AddPerson(email=email, time_zone="Asia/Tokyo"))
    rows = [["Primary", "Secondaries", "Status"], *([one, two, "active"] for one, two in PEOPLE.items())]
    google.run(SetSheet(spreadsheet_id=SHEET, sheet="User Mappings", rows=rows))
    _fill_calendars(google, world.clock.now())
    return {
        "service_account": str(_key_file(google, world.folder)), "mappings": f"sheet:{SHEET}",
        "calendar_url": google.calendar_url, "sheets_url": google.sheets_url, "safety_poll_s": 60.0,
    }  # fmt: skip


def _key_file(google: GoogleSimulator, folder: Path) -> Path:
    path = folder / KEY_FILE
    path.write_bytes(msgspec.json.encode(google.service_account("demo")))
    return path


def _fill_calendars(google: GoogleSimulator, now: datetime) -> None:
    """The same meetings at every start, on the days to come."""
    day = now.replace(hour=1, minute=0, second=0, microsecond=0)
    weekly = {"recurrence": ["RRULE:FREQ=WEEKLY;COUNT=8"]}
    for number, (owner, title, others, more) in enumerate([
        (ALICE, "Weekly planning", (BOB, CAROL), weekly),
        (ALICE, "Budget review", (CAROL,), {}),
        (BOB, "Customer call", (CUSTOMER,), {}),
        (CAROL, "Training", (), {}),
    ]):  # fmt: skip
        event = _meeting(title, (owner, *others), day + timedelta(days=number + 1, hours=number))
        google.run(CreateEvent(calendar=owner, event=event | more | {"id": f"demoseed{number}"}))


def _meeting(title: str, guests: tuple[str, ...], start: datetime) -> dict[str, Any]:
    end = start + timedelta(hours=1)
    return {
        "summary": title, "attendees": [{"email": email} for email in guests],
        "start": {"dateTime": start.isoformat(), "timeZone": "Asia/Tokyo"},
        "end": {"dateTime": end.isoformat(), "timeZone": "Asia/Tokyo"},
    }  # fmt: skip


async def open_channels(stage: Stage) -> None:
    """The simulated Google is a new one at every start: channels of the last one lead nowhere."""
    engine = _operations(stage).engine
    await engine.refresh()
    await engine.force("the simulated Google was restarted")


def _operations(stage: Stage) -> CalendarSync:
    operations: CalendarSync = stage.operations("calendar_sync")
    return operations


async def act(stage: Stage) -> None:
    """Somebody arranges a meeting; the oldest of those that were arranged so is over."""
    google = stage.world.the(GoogleSimulator)
    passing = [one for one in _events(google, ALICE) if one["id"].startswith(LIVE)]
    for event in passing[: max(0, len(passing) - LIVE_MAX)]:
        google.run(DeleteEvent(calendar=ALICE, event_id=event["id"]))
    _arrange(stage, random.choice(_TITLES))


def _arrange(stage: Stage, title: str) -> None:
    guests = (ALICE, random.choice((BOB, CAROL, CUSTOMER)))
    event = _meeting(title, guests, stage.clock.now() + timedelta(hours=random.randrange(2, 80)))
    mark = {"id": f"{LIVE}{ulid().lower().translate(_BASE32HEX)}"}
    stage.world.the(GoogleSimulator).run(CreateEvent(calendar=ALICE, event=event | mark))


# Google's event ids stop at v; those of the clock go on to z.
_BASE32HEX: Final = str.maketrans("wxyz", "ilou")


def _events(google: GoogleSimulator, calendar: str) -> list[dict[str, Any]]:
    found: Any = google.run(ShowCalendar(calendar=calendar))
    return [event for event in found if event["status"] != "cancelled"]


async def arrange(stage: Stage) -> str:
    _arrange(stage, "Made by you")
    return "A meeting is on Alice's calendar. In a moment her second address is a guest too."


async def leave(stage: Stage) -> str:
    google = stage.world.the(GoogleSimulator)
    for event in _events(google, ALICE):
        guests = [guest for guest in event.get("attendees", []) if guest["email"] != BOB]
        if len(guests) < len(event.get("attendees", [])):
            patch = {"attendees": guests}
            google.run(UpdateEvent(calendar=ALICE, event_id=event["id"], patch=patch))
            return f"Bob is off “{event['summary']}”. In a moment his second address is as well."
    return "Bob is on no meeting of Alice's; arrange some first."


async def drop(stage: Stage) -> str:
    stage.world.the(GoogleSimulator).run(Pushes(act="drop"))
    _arrange(stage, "Nobody was told")
    return "The next push is lost. The safety poll finds the meeting within a minute."


async def expire(stage: Stage) -> str:
    stage.world.the(GoogleSimulator).run(ExpireSyncTokens())
    _arrange(stage, "After the tokens ended")
    return "Google forgot how far we had read (410): the next sync reads everything again."


async def revoke(stage: Stage) -> str:
    stage.world.the(GoogleSimulator).run(RevokeAccess(email=ALICE))
    _arrange(stage, "Out of reach")
    return "Alice's calendar can't be read any more: it will need attention, and health says so."


async def restore(stage: Stage) -> str:
    stage.world.the(GoogleSimulator).run(Restore(email=ALICE))
    await _operations(stage).reload(stage.runtime.operator(SERVICE, NO_TENANT, actor="demo"))
    return "Access is back; what waited for it is tried again."


async def facts(stage: Stage) -> list[Fact]:
    report = await _operations(stage).engine.status()
    facts: list[Fact] = [
        ("Channels open", str(report.by_status.get("active", 0))),
        ("Calendars in need of attention", str(report.by_standing.get("attention", 0))),
    ]
    if meetings := [one for one in _events(stage.world.the(GoogleSimulator), ALICE) if one.get("attendees")]:
        last = max(meetings, key=lambda one: str(one["updated"]))
        facts.append(
            (f"Guests of “{last['summary']}”", ", ".join(guest["email"] for guest in last["attendees"]))
        )
    return facts


scene = Scene(
    title="Calendar sync",
    about="Alice, Bob and Carol have second addresses. Whatever meeting they are on, those are invited too.",
    settings=settings,
    open=open_channels,
    act=act,
    every_s=20.0,
    controls=[
        Control(name="arrange", label="Arrange a meeting", kind="primary", run=arrange),
        Control(name="leave", label="Take Bob off a meeting", run=leave),
        Control(name="drop", label="Lose a push", kind="danger", run=drop),
        Control(name="expire", label="End the sync tokens", kind="danger", run=expire),
        Control(name="revoke", label="Revoke Alice's access", kind="danger", run=revoke),
        Control(name="restore", label="Give it back", run=restore),
    ],
    facts=facts,
    look=[("/console/channels", "Channels"), ("/console/inbox", "Inbox")],
    live=["channels", "inbox", "calendar-sync"],
)
