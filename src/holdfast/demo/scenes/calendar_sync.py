"""Calendar sync on a simulated Google: people's secondary addresses are added to their meetings."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
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
LIVE: Final = "demolive"  # the prefix of ids of meetings created here
LIVE_MAX: Final = 8
_TITLES: Final = ("Customer call", "Design review", "Budget", "Interview", "Retrospective", "Handover")


def settings(world: SimulatorSet) -> Mapping[str, Any]:
    """Three people with calendars, the sheet of mappings, and a key for the service."""
    google = world.get(GoogleSimulator)
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
    """The same meetings at every start, on the coming days."""
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
    """The simulated Google is new at every start: channels of the last one lead nowhere."""
    engine = _operations(stage).engine
    await engine.refresh()
    await engine.force("the simulated Google was restarted")


def _operations(stage: Stage) -> CalendarSync:
    operations: CalendarSync = stage.operations("calendar_sync")
    return operations


async def act(stage: Stage) -> None:
    """Create a meeting, and delete the oldest one created here."""
    google = stage.world.get(GoogleSimulator)
    created = [one for one in _events(google, ALICE) if one["id"].startswith(LIVE)]
    for event in created[: max(0, len(created) - LIVE_MAX)]:
        google.run(DeleteEvent(calendar=ALICE, event_id=event["id"]))
    _arrange(stage, random.choice(_TITLES))


def _arrange(stage: Stage, title: str, *, among: Sequence[str] = (BOB, CAROL, CUSTOMER)) -> None:
    guests = (ALICE, random.choice(among))
    event = _meeting(title, guests, stage.clock.now() + timedelta(hours=random.randrange(2, 80)))
    id_field = {"id": f"{LIVE}{ulid().lower().translate(_BASE32HEX)}"}
    stage.world.get(GoogleSimulator).run(CreateEvent(calendar=ALICE, event=event | id_field))


# Google's event ids end at v; those of the clock go on to z.
_BASE32HEX: Final = str.maketrans("wxyz", "ilou")


def _events(google: GoogleSimulator, calendar: str) -> list[dict[str, Any]]:
    events: Any = google.run(ShowCalendar(calendar=calendar))
    return [event for event in events if event["status"] != "cancelled"]


async def arrange(stage: Stage) -> str:
    _arrange(stage, "Created by you")
    return "A meeting is on Alice's calendar. Her second address is added in a moment."


async def leave(stage: Stage) -> str:
    google = stage.world.get(GoogleSimulator)
    for event in _events(google, ALICE):
        guests = [guest for guest in event.get("attendees", []) if guest["email"] != BOB]
        if len(guests) < len(event.get("attendees", [])):
            patch = {"attendees": guests}
            google.run(UpdateEvent(calendar=ALICE, event_id=event["id"], patch=patch))
            return f"Bob was removed from “{event['summary']}”. His second address follows in a moment."
    return "Bob is on none of Alice's meetings; create one first."


async def drop(stage: Stage) -> str:
    stage.world.get(GoogleSimulator).run(Pushes(act="drop"))
    _arrange(stage, "Push dropped")
    return "The next push is dropped. The safety poll finds the meeting within a minute."


async def expire(stage: Stage) -> str:
    stage.world.get(GoogleSimulator).run(ExpireSyncTokens())
    _arrange(stage, "After the tokens expired")
    return "The sync token expired (410): the next sync reads everything again."


async def revoke(stage: Stage) -> str:
    stage.world.get(GoogleSimulator).run(RevokeAccess(email=ALICE))
    # With nobody else who is mapped, since a guest's sync would see the meeting too.
    _arrange(stage, "Out of reach", among=(CUSTOMER,))
    return "Alice's calendar can't be read any more: it needs attention, and health is degraded."


async def restore(stage: Stage) -> str:
    stage.world.get(GoogleSimulator).run(Restore(email=ALICE))
    await _operations(stage).reload(stage.runtime.operator(SERVICE, NO_TENANT, actor="demo"))
    return "Access is restored: her calendar is synced again in a moment."


async def facts(stage: Stage) -> list[Fact]:
    report = await _operations(stage).engine.status()
    facts: list[Fact] = [
        ("Health", report.status()),
        ("Channels open", str(report.by_status.get("active", 0))),
        ("Calendars that need attention", str(report.needs_attention)),
    ]
    if meetings := [one for one in _events(stage.world.get(GoogleSimulator), ALICE) if one.get("attendees")]:
        last = max(meetings, key=lambda one: str(one["updated"]))
        facts.append(
            (f"Guests of “{last['summary']}”", ", ".join(guest["email"] for guest in last["attendees"]))
        )
    return facts


scene = Scene(
    title="Calendar sync",
    about="Alice, Bob and Carol have second addresses, which are added to every meeting they are invited to.",
    settings=settings,
    open=open_channels,
    act=act,
    every_s=20.0,
    controls=[
        Control(name="arrange", label="Create a meeting", kind="primary", run=arrange),
        Control(name="leave", label="Remove Bob from a meeting", run=leave),
        Control(name="drop", label="Drop a push", kind="danger", run=drop),
        Control(name="expire", label="Expire the sync tokens", kind="danger", run=expire),
        Control(name="revoke", label="Revoke Alice's access", kind="danger", run=revoke),
        Control(name="restore", label="Restore access", run=restore),
    ],
    facts=facts,
    links=[("/console/channels", "Channels"), ("/console/inbox", "Inbox")],
    live=["channels", "inbox", "calendar-sync"],
)
