"""Telegram's Bot API: messages, buttons, administrators, updates."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, Generic, TypeVar

import msgspec

from holdfast.clock import Clock
from holdfast.errors import AlreadyExistsError, GoneError, HoldfastError, NotFoundError, RetryLaterError
from holdfast.net import HttpSession
from holdfast.providers.credentials import FixedToken, in_path
from holdfast.providers.rest import Call, CallLimits, RestClient, RestResponse, fault_by_status
from holdfast.providers.telegram.types import (
    BotRefusal,
    ChatMember,
    InlineKeyboardMarkup,
    Message,
    TelegramUser,
    Update,
    WebhookInfo,
)

TELEGRAM_URL: Final = "https://api.telegram.org"
TEXT_CHARACTERS_MAX: Final = 4_096
UPDATE_KINDS: Final = ("message", "callback_query", "my_chat_member")
T = TypeVar("T")
# Waits for a turn to send to this chat.
SendLimit = Callable[[int], Awaitable[None]]


class _Result(msgspec.Struct, Generic[T], frozen=True):
    result: T


def fault_of(act: str, response: RestResponse) -> HoldfastError:
    """Return what a refusal by the Bot API means for the caller."""
    try:
        refusal = msgspec.json.decode(response.body, type=BotRefusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        refusal = BotRefusal()
    text = refusal.description
    if refusal.parameters.migrate_to_chat_id is not None:
        return GoneError(f"{act} was refused: the group is now chat {refusal.parameters.migrate_to_chat_id}")
    if "message is not modified" in text:
        return AlreadyExistsError(f"{act} was refused: the message has this text already")
    if "to edit not found" in text or "chat not found" in text:
        return NotFoundError(f"{act} was refused: {text}")
    fault = fault_by_status(act, response, text)
    if isinstance(fault, RetryLaterError):
        fault.after_s = refusal.parameters.retry_after
    return fault


class TelegramBot:
    """The Bot API as one bot.

    `send_limit` is awaited before each message, so that Telegram's limits (30 a second, one a second in each
    chat) hold over all processes.

    Example:
        bot = TelegramBot(session, token, clock=clock)
        await bot.send_message(chat.id, "<b>Done</b>")
    """

    def __init__(
        self,
        session: HttpSession,
        token: str,
        *,
        clock: Clock,
        base_url: str = TELEGRAM_URL,
        limits: CallLimits = CallLimits(call_s=10.0),
        send_limit: SendLimit | None = None,
    ) -> None:
        self._rest = RestClient(
            session, base_url, fault_of=fault_of, clock=clock, tokens=FixedToken(token),
            placement=in_path("bot"), limits=limits,
        )  # fmt: skip
        self._send_limit = send_limit

    async def get_me(self) -> TelegramUser:
        return await self._call("getMe", TelegramUser, repeatable=True)

    async def send_message(
        self,
        chat_id: int,
        text: str,
        *,
        reply_to: int | None = None,
        keyboard: InlineKeyboardMarkup | None = None,
    ) -> Message:
        """Send HTML; `OutcomeUnknownError` where it may have been sent."""
        body: dict[str, Any] = {"chat_id": chat_id, "text": text, "parse_mode": "HTML", **_NO_PREVIEW}
        if reply_to is not None:
            body["reply_parameters"] = {"message_id": reply_to, "allow_sending_without_reply": True}
        if keyboard is not None:
            body["reply_markup"] = keyboard
        await self._turn(chat_id)
        return await self._call("sendMessage", Message, body)

    async def edit_message_text(
        self, chat_id: int, message_id: int, text: str, *, keyboard: InlineKeyboardMarkup | None = None
    ) -> None:
        """Replace a message's text and buttons; one that has this text already is left."""
        body: dict[str, Any] = {
            "chat_id": chat_id, "message_id": message_id, "text": text, "parse_mode": "HTML", **_NO_PREVIEW,
        }  # fmt: skip
        if keyboard is not None:
            body["reply_markup"] = keyboard
        await self._turn(chat_id)
        with suppress(AlreadyExistsError):
            await self._call("editMessageText", msgspec.Raw, body, repeatable=True)

    async def answer_callback_query(self, query_id: str, text: str = "") -> None:
        """End the wait that a pressed button shows."""
        body = {"callback_query_id": query_id, "text": text}
        await self._call("answerCallbackQuery", bool, body, repeatable=True)

    async def get_chat_member(self, chat_id: int, user_id: int) -> ChatMember:
        """Return a user's status in a chat."""
        body = {"chat_id": chat_id, "user_id": user_id}
        return await self._call("getChatMember", ChatMember, body, repeatable=True)

    async def set_webhook(self, url: str, *, secret_token: str) -> None:
        """Have updates sent to this URL, with the secret in a header."""
        body = {"url": url, "secret_token": secret_token, "allowed_updates": UPDATE_KINDS}
        await self._call("setWebhook", bool, body, repeatable=True)

    async def delete_webhook(self) -> None:
        """Have updates kept for `get_updates`."""
        await self._call("deleteWebhook", bool, {}, repeatable=True)

    async def get_webhook_info(self) -> WebhookInfo:
        """Return where updates are sent, and the last failure of that."""
        return await self._call("getWebhookInfo", WebhookInfo, repeatable=True)

    async def get_updates(self, *, offset: int, timeout_s: int) -> list[Update]:
        """Return updates from this id on, waiting for one; those before it are forgotten."""
        body = {"offset": offset, "timeout": timeout_s, "allowed_updates": UPDATE_KINDS}
        return await self._call("getUpdates", list[Update], body, repeatable=True)

    async def _turn(self, chat_id: int) -> None:
        if self._send_limit is not None:
            await self._send_limit(chat_id)

    async def _call(self, act: str, kind: type[T], body: Any = None, *, repeatable: bool = False) -> T:
        call = Call(act, "POST", act, body=msgspec.json.encode(body or {}), repeatable=repeatable)
        return (await self._rest.fetch(call, _Result[kind])).result  # type: ignore[valid-type]


_NO_PREVIEW: Final = {"link_preview_options": {"is_disabled": True}}
