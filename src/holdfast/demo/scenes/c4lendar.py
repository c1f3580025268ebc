"""c4lendar between a simulated Telegram and a simulated Google: a family's chat and two calendars."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec

from holdfast.demo.scene import Control, Fact, Scene, Stage
from holdfast.demo.simulator_set import SimulatorSet
from holdfast.demo.telegram_page import PAGE, plain_lines, press, say
from holdfast.model.access import ANONYMOUS
from holdfast.operations import connections
from holdfast.plural import plural
from holdfast.services.c4lendar.operations import ChatOperations
from holdfast.simulators.google import AddPerson, GiveConsent, GoogleSimulator, InjectedFault, ShowCalendar
from holdfast.simulators.telegram import AddChat, AddUser, MoveBot, Say, ShowChat, TelegramSimulator
from holdfast.web import callback_url

CLIENT_FILE: Final = "simulated-client.json"
OWNER: Final = 1001
PEOPLE: Final = {OWNER: "You", 1002: "Mum", 1003: "Dad"}
FAMILY: Final = -1001
CHAT: Final = str(OWNER)
ACCOUNTS: Final = ("mum@family.example", "dad@family.example")
SECRET: Final = "simulated-webhook-secret"
EVENTS: Final = (
    "swimming lesson friday 4pm", "dentist in 3 days at 9am", "dinner tomorrow 7pm at Luigi's",
    "school holidays in 2 weeks for 5 days", "every monday 18:00 choir",
)  # fmt: skip
MESSAGES_SHOWN: Final = 4


def settings(world: SimulatorSet) -> Mapping[str, Any]:
    """The bot's owner and a family, their group, two accounts, and an OAuth client for the service."""
    telegram, google = world.get(TelegramSimulator), world.get(GoogleSimulator)
    for id, name in PEOPLE.items():
        telegram.run(AddUser(id=id, first_name=name))
    telegram.run(AddChat(id=FAMILY, title="Family", administrators=[OWNER], members=[1002, 1003]))
    for email in ACCOUNTS:
        google.run(AddPerson(email=email, time_zone="Europe/Berlin"))
    client = google.oauth_client("c4lendar", redirect_uris=[callback_url(world.public_url)])
    path = world.folder / CLIENT_FILE
    path.write_bytes(msgspec.json.encode(client))
    return {
        "bot_token": telegram.token, "owner_id": OWNER, "webhook_secret": SECRET, "google_client": str(path),
        "time_zone": "Europe/Berlin", "telegram_url": telegram.url, "calendar_url": google.calendar_url,
    }  # fmt: skip


async def open_scene(stage: Stage) -> None:
    """Connect the accounts: the simulated Google is new at every start and knows no grant.

    The owner adds the bot to the family's group, which approves that.
    """
    stage.world.get(TelegramSimulator).run(MoveBot(chat=FAMILY, person=OWNER))
    bot = stage.runtime.consent_purposes["c4lendar"]
    google = stage.world.get(GoogleSimulator)
    for email in ACCOUNTS:
        link = stage.runtime.connections.link(
            bot.name, tenant_id=CHAT, payload={"chat": CHAT, "user": OWNER},
            redirect_uri=callback_url(stage.world.public_url),
        )  # fmt: skip
        await stage.store.privileged().commit(link.write)
        opened = await stage.runtime.connections.open_link(link.token, bound_to="demo")
        google.run(GiveConsent(email=email))
        async with aiohttp.ClientSession() as session, session.get(opened.url, allow_redirects=False) as page:
            query = parse_qs(urlsplit(page.headers["location"]).query)
        granted = await stage.runtime.connections.exchange(
            query["state"][0], query["code"][0], bound_to="demo"
        )
        await connections.connect(stage.runtime, stage.runtime.operator(ANONYMOUS, "-"), granted)


def _say(stage: Stage, text: str) -> None:
    stage.world.get(TelegramSimulator).run(Say(chat=OWNER, person=OWNER, text=text))


def _control(name: str, label: str, text: str, **more: Any) -> Control:
    async def run(stage: Stage) -> str:
        _say(stage, text or f"#cal {random.choice(EVENTS)}")
        return "Sent. The bot's answer is above in a moment; look at the chat's page for the accounts."

    return Control(name=name, label=label, run=run, **more)


async def _break_google(stage: Stage) -> str:
    fault = InjectedFault(count=4, status=503, path="/events")
    stage.world.get(GoogleSimulator).inject(fault)
    _say(stage, f"#cal {random.choice(EVENTS)}")
    return "Google refuses the next calls: the bot says which account failed, and edits its message later."


async def facts(stage: Stage) -> list[Fact]:
    """The end of the conversation, and what is in the calendars."""
    messages: Any = stage.world.get(TelegramSimulator).run(ShowChat(chat=OWNER))
    said = [(_speaker(one), " · ".join(plain_lines(one["text"]))) for one in messages[-MESSAGES_SHOWN:]]
    return [*said, *[(email, f"{plural(_count(stage, email), 'event')}") for email in ACCOUNTS]]


def _speaker(message: Mapping[str, Any]) -> str:
    return "The bot" if message["from"]["is_bot"] else "You"


def _count(stage: Stage, email: str) -> int:
    shown: Any = stage.world.get(GoogleSimulator).run(ShowCalendar(calendar=email))
    return sum(one["status"] != "cancelled" for one in shown)


async def seed(stage: Stage) -> None:
    """Two events to begin with."""
    for text in EVENTS[:2]:
        _say(stage, f"#cal {text}")


def _operations(stage: Stage) -> ChatOperations:
    operations: ChatOperations = stage.operations("c4lendar")
    return operations


async def act(stage: Stage) -> None:
    """Nothing by itself: the chat is the visitor's."""
    await _operations(stage).chat(CHAT)


scene = Scene(
    title="c4lendar",
    about="A Telegram chat with two connected Google calendars. Write to the bot and see both change.",
    settings=settings,
    open=open_scene,
    seed=seed,
    act=act,
    every_s=60.0,
    controls=[
        _control("cal", "#cal: add an event", "", kind="primary"),
        _control("alt", "#alt 1 hour later", "#alt 1 hour later"),
        _control("del", "#del: delete the newest", "#del"),
        _control("undo", "#undo", "#undo"),
        _control("view", "#view week", "#view week"),
        Control(name="break", label="Break Google for a moment", kind="danger", run=_break_google),
    ],
    facts=facts,
    links=[("/console/demo/telegram", "Write to the bot"), (f"/console/c4lendar/chats/{CHAT}", "The chat")],
    live=("c4lendar", "runs", "inbox"),
    pages=[PAGE],
    inputs={"say": say, "press": press},
)
