"""The bot between a simulated Telegram and a simulated Google, on a store of the test's choice.

No loop runs until the test says so: `say` puts an update into the inbox, as
the webhook does, and works on what is due.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import aiohttp
import msgspec

from holdfast.clock import Clock
from holdfast.config import load_config
from holdfast.kit.processes import BEAT_S
from holdfast.model.access import ANONYMOUS
from holdfast.operations import connections
from holdfast.runtime import Runtime
from holdfast.services.c4lendar import service
from holdfast.services.c4lendar.operations import ChatOperations
from holdfast.services.c4lendar.parts import SOURCE
from holdfast.simulators.google import AddPerson, GiveConsent, GoogleSimulator, ShowCalendar
from holdfast.simulators.telegram import (
    AddChat,
    AddUser,
    MoveBot,
    PressButton,
    Say,
    SetLimits,
    TelegramSimulator,
)  # fmt: skip
from holdfast.testing import ManualClock
from holdfast.web import callback_url, start_url

OWNER, ANA, BEN, GROUP = 1, 7, 8, -100_123
ALICE, BOB = "alice@gmail.com", "bob@gmail.com"
SECRET: Final = "s3cret"
PUBLIC: Final = "http://127.0.0.1:8000"


class ChatClock(ManualClock):
    """Waits before a call is repeated are over at once; longer ones, such as time limits, are the test's."""

    async def sleep(self, seconds: float) -> None:
        if seconds >= BEAT_S:
            await super().sleep(seconds)
        else:
            self.tick(seconds)


@dataclass
class Harness:
    telegram: TelegramSimulator
    google: GoogleSimulator
    runtime: Runtime
    session: aiohttp.ClientSession
    clock: Any
    config: Any

    @property
    def operations(self) -> ChatOperations:
        operations: ChatOperations = self.runtime.parts["c4lendar"].operations
        return operations

    async def receive(self) -> None:
        """Put the waiting updates into the inbox, as the webhook does."""
        source = self.runtime.parts["c4lendar"].webhooks[0].source
        assert source.name == SOURCE
        while self.telegram.state.updates:
            body = msgspec.json.encode(self.telegram.state.updates.popleft())
            headers = {"x-telegram-bot-api-secret-token": SECRET}
            await self.runtime.inbox.receive(source, headers, body)

    async def work(self) -> None:
        """Do what is due, until nothing is."""
        await self.receive()
        while await self.runtime.inbox_worker.turn() + await self.runtime.runner.turn():
            pass

    async def say(self, text: str, *, chat: int = ANA, person: int = ANA, reply_to: int | None = None) -> str:
        """A person writes, after two seconds; return what the bot answered last, empty for nothing."""
        if isinstance(self.clock, ChatClock):
            self.clock.tick(2)
        before = len(self.messages(chat))
        self.telegram.run(Say(chat=chat, person=person, text=text, reply_to=reply_to))
        await self.work()
        new = self.messages(chat)[before + 1 :]
        return str(new[-1]["text"]) if new else ""

    async def press(self, button: str, *, chat: int = ANA, person: int = ANA) -> str:
        """A person presses a button of the last message; return its text afterwards."""
        message = self.messages(chat)[-1]
        self.telegram.run(PressButton(chat=chat, person=person, message=message["message_id"], button=button))
        await self.work()
        return str(self.messages(chat)[-1]["text"])

    def messages(self, chat: int = ANA) -> list[dict[str, Any]]:
        return list(self.telegram.state.chats[chat].messages.values())

    def last(self, chat: int = ANA) -> dict[str, Any]:
        return self.messages(chat)[-1]

    def buttons(self, chat: int = ANA) -> list[dict[str, Any]]:
        rows = self.last(chat).get("reply_markup", {}).get("inline_keyboard", [])
        return [one for row in rows for one in row]

    async def connect(self, email: str, *, chat: int = ANA, person: int = ANA) -> None:
        """A person opens the link of `#aut` and consents at Google."""
        await self.say("#aut", chat=chat, person=person)
        [button] = self.buttons(chat)
        await self.consent(button["url"], email)
        await self.work()

    async def link(self, chat_id: str, *, person: int = ANA) -> str:
        """A start link as `#aut` sends it."""
        made = self.runtime.connections.link(
            "c4lendar", tenant_id=chat_id, payload={"chat": chat_id, "user": person},
            redirect_uri=callback_url(PUBLIC),
        )  # fmt: skip
        await self.runtime.store.privileged().commit(made.write)
        return start_url(PUBLIC, made.token)

    async def consent(self, url: str, email: str) -> None:
        token = parse_qs(urlsplit(url).query)["link"][0]
        opened = await self.runtime.connections.open_link(token, bound_to="browser")
        self.google.run(GiveConsent(email=email))
        async with self.session.get(opened.url, allow_redirects=False) as answer:
            query = parse_qs(urlsplit(answer.headers["location"]).query)
        granted = await self.runtime.connections.exchange(
            query["state"][0], query["code"][0], bound_to="browser"
        )
        by = self.runtime.operator(ANONYMOUS, "-")
        await connections.connect(self.runtime, by, granted)

    def calendar(self, email: str) -> list[dict[str, Any]]:
        shown: Any = self.google.run(ShowCalendar(calendar=email))
        return [one for one in shown if one["status"] != "cancelled"]

    def titles(self, email: str) -> list[str]:
        return sorted(one["summary"] for one in self.calendar(email))

    async def restart(self, **settings: Any) -> None:
        """Another process on the same store, in place of this one."""
        await self.runtime.close()
        table = {**self.config.service_settings["c4lendar"], **settings}
        self.config = msgspec.structs.replace(self.config, service_settings={"c4lendar": table})
        self.runtime = await Runtime.open(self.config, services=[service], clock=self.clock)


def reference(text: str) -> str:
    """The reference in a message."""
    found = re.search(r"EVT-\w+", text)
    assert found is not None, text
    return found[0]


@contextlib.asynccontextmanager
async def chat_harness(
    url: str, home: Path, *, settings: Mapping[str, Any] | None = None, clock: Clock | None = None
) -> AsyncIterator[Harness]:
    """Ana and Ben with the bot in their private chats and in a group; Ana's chat is approved."""
    clock = clock or ChatClock()
    async with contextlib.AsyncExitStack() as stack:
        telegram = await stack.enter_async_context(TelegramSimulator(clock=clock))
        google = await stack.enter_async_context(GoogleSimulator(clock=clock))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        telegram.run(SetLimits(enforced=False))
        for id, name in ((OWNER, "Olga"), (ANA, "Ana"), (BEN, "Ben")):
            telegram.run(AddUser(id=id, first_name=name))
        telegram.run(AddChat(id=GROUP, title="Family", administrators=[ANA], members=[BEN, OWNER]))
        for email in (ALICE, BOB):
            google.run(AddPerson(email=email, time_zone="Europe/Berlin"))
        client = home / "client.json"
        client.write_bytes(msgspec.json.encode(google.oauth_client(redirect_uris=[callback_url(PUBLIC)])))
        table = {
            "bot_token": telegram.token, "owner_id": OWNER, "webhook_secret": SECRET,
            "register_webhook": False,
            "google_client": str(client), "time_zone": "Europe/Berlin", "telegram_url": telegram.url,
            "calendar_url": google.calendar_url, "messages_per_s": 100_000, "messages_per_chat_s": 100_000,
            **(settings or {}),
        }  # fmt: skip
        base = load_config({"home": home, "store": url, "public_url": PUBLIC}, environ={})
        config = msgspec.structs.replace(base, service_settings={"c4lendar": table})
        runtime = await Runtime.open(config, services=[service], clock=clock)
        harness = Harness(telegram, google, runtime, session, clock, config)
        try:
            await harness.say("hello")
            await harness.say(f"/approve {ANA}", chat=OWNER, person=OWNER)
            yield harness
        finally:
            await harness.runtime.close()


def add_group(harness: Harness, person: int = OWNER) -> None:
    """The bot is added to the group."""
    harness.telegram.run(MoveBot(chat=GROUP, person=person))
