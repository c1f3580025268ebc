"""Commands on the simulated Telegram: what people in the chats do."""

from __future__ import annotations

from typing import Any, Final, Literal

from holdfast.simulators.server import Command
from holdfast.simulators.telegram.state import BOT, SimulatedChat, TelegramState


class AddUser(Command[TelegramState], frozen=True):
    """A person with a private chat with the bot: {id, firstName}."""

    id: int
    first_name: str

    def run(self, state: TelegramState) -> object:
        person = {"id": self.id, "is_bot": False, "first_name": self.first_name}
        state.people[self.id] = person
        chat = SimulatedChat({"id": self.id, "type": "private", "first_name": self.first_name})
        chat.members = {self.id: "member", int(str(BOT["id"])): "member"}
        state.chats[self.id] = chat
        return person


class AddChat(Command[TelegramState], frozen=True):
    """A group: {id, title, administrators, members}. The bot is not in it before `moveBot`."""

    id: int
    title: str
    administrators: list[int] = []
    members: list[int] = []

    def run(self, state: TelegramState) -> object:
        chat = SimulatedChat({"id": self.id, "type": "supergroup", "title": self.title})
        chat.members = dict.fromkeys(self.members, "member") | dict.fromkeys(
            self.administrators, "administrator"
        )
        chat.members[int(str(BOT["id"]))] = "left"
        state.chats[self.id] = chat
        return chat.chat


class MoveBot(Command[TelegramState], frozen=True):
    """A person adds the bot to a chat, or removes it: {chat, person, status}."""

    chat: int
    person: int
    status: Literal["member", "left", "kicked"] = "member"

    def run(self, state: TelegramState) -> object:
        chat, bot = state.chats[self.chat], int(str(BOT["id"]))
        old, chat.members[bot] = chat.members.get(bot, "left"), self.status
        return state.add_update(
            my_chat_member={
                "chat": chat.chat, "from": state.people[self.person], "date": state.now_s(),
                "old_chat_member": {"user": BOT, "status": old},
                "new_chat_member": {"user": BOT, "status": self.status},
            }
        )  # fmt: skip


class Say(Command[TelegramState], frozen=True):
    """A person writes in a chat: {chat, person, text, replyTo}."""

    chat: int
    person: int
    text: str
    reply_to: int | None = None

    def run(self, state: TelegramState) -> object:
        chat = state.chats[self.chat]
        reply = {} if self.reply_to is None else {"reply_to_message": _flat(chat.messages[self.reply_to])}
        message = state.add_message(chat, state.people[self.person], self.text, **reply)
        return state.add_update(message=message)


class PressButton(Command[TelegramState], frozen=True):
    """A person presses the button with this text or data below a message: {chat, person, message, button}."""

    chat: int
    person: int
    message: int
    button: str

    def run(self, state: TelegramState) -> object:
        message = state.chats[self.chat].messages[self.message]
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        pressed = [
            one for row in rows for one in row if self.button in (one["text"], one.get("callback_data"))
        ]
        if not pressed:
            raise LookupError(f"message {self.message} has no button {self.button!r}")
        query = {
            "id": f"q{self.chat}-{self.message}-{state.now_s()}", "from": state.people[self.person],
            "message": _flat(message), "chat_instance": str(self.chat), "data": pressed[0]["callback_data"],
        }  # fmt: skip
        return state.add_update(callback_query=query)


class ShowChat(Command[TelegramState], frozen=True):
    """The messages of a chat, oldest first: {chat}."""

    chat: int

    def run(self, state: TelegramState) -> object:
        return list(state.chats[self.chat].messages.values())


class SetLimits(Command[TelegramState], frozen=True):
    """Enforce the limits of sending, or not: {enforced}."""

    enforced: bool

    def run(self, state: TelegramState) -> object:
        state.limited = self.enforced
        return {}


def _flat(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if name != "reply_to_message"}


COMMANDS: Final[dict[str, type[Command[TelegramState]]]] = {
    "addUser": AddUser,
    "addChat": AddChat,
    "moveBot": MoveBot,
    "say": Say,
    "pressButton": PressButton,
    "chat": ShowChat,
    "limits": SetLimits,
}
