"""The simulated Telegram: the Bot API over HTTP, with updates by webhook or long polling."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any, Final, Self

import aiohttp
import msgspec
from aiohttp import web

from holdfast.clock import Clock
from holdfast.simulators.server import InjectedFault, SimulatorServer, json_response
from holdfast.simulators.telegram.control import COMMANDS
from holdfast.simulators.telegram.state import BOT, TOKEN, BotApiError, TelegramState

TEXT_CHARACTERS_MAX: Final = 4_096
CALLBACK_BYTES_MAX: Final = 64
RETRY_S: Final = 1.0
_TAGS: Final = frozenset({"b", "i", "u", "s", "a", "code", "pre", "strong", "em", "tg-spoiler", "blockquote"})
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")


class TelegramSimulator(SimulatorServer[TelegramState]):
    """The Bot API of one bot, whose token is `token`.

    Example:
        async with TelegramSimulator(clock=SystemClock()) as telegram:
            telegram.run(AddUser(id=7, first_name="Ana"))
            telegram.run(Say(chat=7, person=7, text="#cal lunch tomorrow noon"))
    """

    token: Final = TOKEN

    def __init__(self, *, clock: Clock, port: int = 0) -> None:
        super().__init__(TelegramState(clock), clock=clock, commands=COMMANDS, refuse=_refuse, port=port)
        self.app.router.add_route("*", "/bot{token}/{method}", self._answer)
        self._methods: dict[str, Callable[[dict[str, Any]], Any]] = {
            "getMe": lambda body: BOT,
            "sendMessage": self._send,
            "editMessageText": self._edit,
            "answerCallbackQuery": self._answer_query,
            "getChatMember": self._member,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "getWebhookInfo": self._webhook_info,
        }
        self._pusher: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._pusher = asyncio.create_task(self._push_all())
        return self

    async def __aexit__(self, *error: Any) -> None:
        assert self._pusher is not None
        self._pusher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._pusher
        await super().__aexit__(*error)

    async def _answer(self, request: web.Request) -> web.Response:
        try:
            if request.match_info["token"] != TOKEN:
                raise BotApiError(401, "Unauthorized")
            body = await _body_of(request)
            name = request.match_info["method"]
            if name == "getUpdates":
                return _ok(await self._get_updates(body))
            if name not in self._methods:
                raise BotApiError(404, "Not Found")
            return _ok(self._methods[name](body))
        except BotApiError as refusal:
            return _refusal(refusal)

    def _send(self, body: dict[str, Any]) -> dict[str, Any]:
        chat = self.state.chat(_int(body.get("chat_id")))
        text = _checked_text(body)
        keyboard = _checked_keyboard(body)
        self.state.count_send(chat.chat["id"])
        more: dict[str, Any] = {"reply_markup": keyboard} if keyboard else {}
        reply_to = (_struct(body.get("reply_parameters")) or {}).get("message_id")
        if reply_to in chat.messages:
            more["reply_to_message"] = {
                name: value for name, value in chat.messages[reply_to].items() if name != "reply_to_message"
            }
        return self.state.add_message(chat, BOT, text, **more)

    def _edit(self, body: dict[str, Any]) -> dict[str, Any]:
        chat = self.state.chat(_int(body.get("chat_id")))
        message = chat.messages.get(_int(body.get("message_id")) or 0)
        if message is None or message["from"] != BOT:
            raise BotApiError(400, "Bad Request: message to edit not found")
        text, keyboard = _checked_text(body), _checked_keyboard(body)
        if text == message["text"] and keyboard == message.get("reply_markup"):
            raise BotApiError(400, "Bad Request: message is not modified")
        self.state.count_send(chat.chat["id"])
        message.pop("reply_markup", None)
        message.update(
            text=text, edit_date=self.state.now_s(), **({"reply_markup": keyboard} if keyboard else {})
        )
        return message

    def _answer_query(self, body: dict[str, Any]) -> bool:
        self.state.answered.append(str(body.get("callback_query_id")))
        return True

    def _member(self, body: dict[str, Any]) -> dict[str, Any]:
        chat, user_id = self.state.chat(_int(body.get("chat_id"))), _int(body.get("user_id")) or 0
        user = BOT if user_id == BOT["id"] else self.state.people.get(user_id)
        if user is None:
            raise BotApiError(400, "Bad Request: user not found")
        return {"user": user, "status": chat.members.get(user_id, "left")}

    def _set_webhook(self, body: dict[str, Any]) -> bool:
        secret = str(body.get("secret_token", ""))
        if secret and not _SECRET.fullmatch(secret):
            raise BotApiError(400, "Bad Request: secret token contains unallowed characters")
        self.state.webhook_url, self.state.webhook_secret = str(body.get("url", "")), secret
        self.state.arrived.set()
        return True

    def _delete_webhook(self, body: dict[str, Any]) -> bool:
        self.state.webhook_url = ""
        return True

    def _webhook_info(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "url": self.state.webhook_url, "has_custom_certificate": False,
            "pending_update_count": len(self.state.updates), "last_error_message": self.state.last_error,
        }  # fmt: skip

    async def _get_updates(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        if self.state.webhook_url:
            raise BotApiError(409, "Conflict: can't use getUpdates method while webhook is active")
        offset, timeout_s = _int(body.get("offset")) or 0, _int(body.get("timeout")) or 0
        while self.state.updates and self.state.updates[0]["update_id"] < offset:
            self.state.updates.popleft()
        if not self.state.updates and timeout_s:
            self.state.arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.state.arrived.wait(), timeout_s)
        return list(self.state.updates)[:100]

    async def _push_all(self) -> None:
        """Send updates to the webhook in order; one that is not taken is sent again."""
        async with aiohttp.ClientSession() as session:
            while True:
                if not self.state.webhook_url or not self.state.updates:
                    self.state.arrived.clear()
                    await self.state.arrived.wait()
                    continue
                update = self.state.updates[0]
                if await self._post(session, update):
                    if self.state.updates and self.state.updates[0] is update:
                        self.state.updates.popleft()
                else:
                    await self._clock.sleep(RETRY_S)

    async def _post(self, session: aiohttp.ClientSession, update: dict[str, Any]) -> bool:
        headers = (
            {"X-Telegram-Bot-Api-Secret-Token": self.state.webhook_secret}
            if self.state.webhook_secret
            else {}
        )
        try:
            async with session.post(self.state.webhook_url, json=update, headers=headers) as response:
                self.state.last_error = (
                    "" if response.ok else f"Wrong response from the webhook: {response.status}"
                )
                return response.ok
        except (aiohttp.ClientError, OSError):
            self.state.last_error = "Connection failed"
            return False


async def _body_of(request: web.Request) -> dict[str, Any]:
    if request.content_type == "application/json":
        decoded = msgspec.json.decode(await request.read() or b"{}")
        return decoded if isinstance(decoded, dict) else {}
    return {**request.query, **await request.post()}


def _int(value: object) -> int | None:
    try:
        return int(str(value))
    except ValueError:
        return None


def _struct(value: object) -> Any:
    return msgspec.json.decode(value) if isinstance(value, str) else value


class _HtmlChecker(HTMLParser):
    """Refuses what Telegram's HTML mode refuses: unknown and unclosed tags, bare `<`."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in _TAGS:
            raise BotApiError(400, f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}"')
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            raise BotApiError(400, "Bad Request: can't parse entities: Unmatched end tag")


def _checked_text(body: dict[str, Any]) -> str:
    text = str(body.get("text", ""))
    if not text.strip():
        raise BotApiError(400, "Bad Request: message text is empty")
    if body.get("parse_mode") == "HTML":
        checker = _HtmlChecker()
        checker.feed(text)
        checker.close()
        if checker.open or re.search(
            r"&(?!(?:lt|gt|amp|quot|#\d+|#x[0-9a-f]+);)|<(?!/?[a-z])", text, re.IGNORECASE
        ):
            raise BotApiError(
                400, "Bad Request: can't parse entities: unclosed tag, bare ampersand or bare <"
            )
    if len(re.sub(r"<[^>]*>", "", text)) > TEXT_CHARACTERS_MAX:
        raise BotApiError(400, "Bad Request: message is too long")
    return text


def _checked_keyboard(body: dict[str, Any]) -> dict[str, Any] | None:
    keyboard: dict[str, Any] | None = _struct(body.get("reply_markup"))
    if not keyboard:
        return None
    for button in (one for row in keyboard.get("inline_keyboard", []) for one in row):
        data = str(button.get("callback_data", ""))
        if len(data.encode()) > CALLBACK_BYTES_MAX or not (data or button.get("url")):
            raise BotApiError(400, "Bad Request: BUTTON_DATA_INVALID")
    return keyboard


def _ok(result: object) -> web.Response:
    return json_response({"ok": True, "result": result})


def _refusal(refusal: BotApiError) -> web.Response:
    body: dict[str, Any] = {"ok": False, "error_code": refusal.status, "description": refusal.description}
    if refusal.retry_after_s is not None:
        body["parameters"] = {"retry_after": refusal.retry_after_s}
    return json_response(body, status=refusal.status)


def _refuse(request: web.Request, fault: InjectedFault) -> web.Response:
    text = fault.reason or ("Too Many Requests" if fault.status == 429 else "Internal Server Error")
    return _refusal(BotApiError(fault.status, text, retry_after_s=fault.retry_after_s))
