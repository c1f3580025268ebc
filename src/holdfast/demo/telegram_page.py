"""The page of the simulated Telegram: its chats, to read, to write in and to press the bot's buttons."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from holdfast.demo.scene import ScenePage, Stage
from holdfast.errors import InvalidError
from holdfast.service import PageRequest
from holdfast.simulators.telegram import PressButton, Say, TelegramSimulator

MESSAGES_SHOWN: Final = 50
GONE: Final = ("left", "kicked")


class _Message(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody writes, as a reply to `message` where that is given."""

    chat: int
    person: int
    text: Annotated[str, Meta(min_length=1, max_length=4_096)]
    message: int | None = None


class _Press(msgspec.Struct, frozen=True, kw_only=True):
    chat: int
    person: int
    message: int
    button: str


def plain_lines(text: str) -> list[str]:
    """The lines of a bot's message, without its HTML."""
    return html.unescape(re.sub(r"<[^>]*>", "", text)).split("\n")


async def say(stage: Stage, given: Mapping[str, str]) -> str:
    """A person writes in a chat."""
    said = _read(given, _Message)
    stage.world.get(TelegramSimulator).run(
        Say(chat=said.chat, person=said.person, text=said.text, reply_to=said.message)
    )
    return "Sent."


async def press(stage: Stage, given: Mapping[str, str]) -> str:
    """A person presses a button below one of the bot's messages."""
    one = _read(given, _Press)
    stage.world.get(TelegramSimulator).run(
        PressButton(chat=one.chat, person=one.person, message=one.message, button=one.button)
    )
    return "Pressed."


def _read(given: Mapping[str, str], kind: type[Any]) -> Any:
    try:
        return msgspec.convert({name: value for name, value in given.items() if value}, kind, strict=False)
    except msgspec.ValidationError as fault:
        raise InvalidError(str(fault)) from None


async def _show(stage: Stage, ask: PageRequest) -> Mapping[str, Any]:
    state = stage.world.get(TelegramSimulator).state
    ids = [str(id) for id in state.chats]
    chat_id = ask.choice("chat", ids, default=ids[0])
    chat = state.chats[int(chat_id)]
    members = [id for id, status in chat.members.items() if id in state.people and status not in GONE]
    person = ask.choice("person", [str(id) for id in members], default=str(members[0]))
    shown = list(chat.messages.values())[-MESSAGES_SHOWN:]
    return {
        "chats": [(id, _title(state.chats[int(id)].chat)) for id in ids], "chat_id": chat_id,
        "people": [(str(id), state.people[id]["first_name"]) for id in members], "person": person,
        "messages": [_row(one) for one in shown],
    }  # fmt: skip


def _title(chat: Mapping[str, Any]) -> str:
    return str(chat.get("title") or f"{chat['first_name']} and the bot")


def _row(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message for the page; those of people are text as it is."""
    by_bot, text = message["from"]["is_bot"], message["text"]
    keyboard = message.get("reply_markup", {}).get("inline_keyboard", [])
    return {
        "id": str(message["message_id"]), "by_bot": by_bot,
        "speaker": "The bot" if by_bot else message["from"]["first_name"],
        "lines": plain_lines(text) if by_bot else text.split("\n"), "edited": "edit_date" in message,
        "buttons": [one for row in keyboard for one in row],
    }  # fmt: skip


PAGE: Final = ScenePage(path="/telegram", title="Telegram", template="telegram.html", data=_show)
