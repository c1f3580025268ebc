"""The Bot API's client against the simulator, and its updates as recorded; judged by another library."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import pytest
import telegram as ptb

from holdfast import providers
from holdfast.errors import (
    ForbiddenError,
    InvalidError,
    NotFoundError,
    OutcomeUnknownError,
    ReauthRequiredError,
    RetryLaterError,
)
from holdfast.providers.rest import CallLimits
from holdfast.providers.telegram import InlineKeyboardButton, InlineKeyboardMarkup, TelegramBot, Update
from holdfast.simulators.telegram import (
    AddChat,
    AddUser,
    InjectedFault,
    MoveBot,
    PressButton,
    Say,
    TelegramSimulator,
)
from holdfast.testing import Recording, load_recordings
from tests.kit.receiver import answering, serving
from tests.providers.provider_fixture import HastyClock

UPDATES = load_recordings(Path(providers.__path__[0]) / "telegram" / "fixtures" / "updates.json")
ANA, GROUP = 7, -100_123
KEYBOARD = InlineKeyboardMarkup(
    inline_keyboard=[[InlineKeyboardButton(text="Delete", callback_data="del:1")]]
)


@asynccontextmanager
async def a_bot(
    token: str = "", *, limits: CallLimits = CallLimits()
) -> AsyncIterator[tuple[TelegramSimulator, TelegramBot]]:
    clock = HastyClock()
    async with TelegramSimulator(clock=clock) as telegram, aiohttp.ClientSession() as session:
        telegram.run(AddUser(id=ANA, first_name="Ana"))
        telegram.run(AddChat(id=GROUP, title="Family", administrators=[ANA]))
        bot = TelegramBot(session, token or telegram.token, clock=clock, base_url=telegram.url, limits=limits)
        yield telegram, bot


@pytest.mark.parametrize("one", UPDATES, ids=str)
def test_updates_are_read_as_recorded(one: Recording) -> None:
    update = msgspec.json.decode(one.content, type=Update)
    message, query, member = update.message, update.callback_query, update.my_chat_member
    read: tuple[int, str] | None = None
    if message is not None:
        read = (message.chat.id, message.text)
    elif query is not None and query.message is not None:
        read = (query.message.chat.id, query.data)
    elif member is not None:
        read = (member.chat.id, member.new_chat_member.status)
    assert read == (one.expect["chat"], one.expect["text"])


@pytest.mark.parametrize("one", UPDATES, ids=str)
def test_updates_of_another_library_are_read_too(one: Recording) -> None:
    theirs = ptb.Update.de_json(msgspec.json.decode(one.content), None)
    assert theirs is not None
    assert msgspec.json.decode(theirs.to_json(), type=Update).update_id == theirs.update_id


async def test_a_message_is_sent_edited_and_its_button_pressed() -> None:
    async with a_bot() as (telegram, bot):
        sent = await bot.send_message(ANA, "<b>Which?</b> &amp; when", keyboard=KEYBOARD)
        telegram.run(PressButton(chat=ANA, person=ANA, message=sent.message_id, button="Delete"))
        [update] = await bot.get_updates(offset=0, timeout_s=0)
        assert update.callback_query is not None
        assert update.callback_query.data == "del:1"
        await bot.answer_callback_query(update.callback_query.id)
        await bot.edit_message_text(ANA, sent.message_id, "Deleted")
        await bot.edit_message_text(ANA, sent.message_id, "Deleted")
        [message] = telegram.state.chats[ANA].messages.values()
        assert (message["text"], "reply_markup" in message) == ("Deleted", False)
        assert await bot.get_updates(offset=update.update_id + 1, timeout_s=0) == []


async def test_another_library_reads_what_was_sent() -> None:
    async with a_bot() as (telegram, bot):
        await bot.send_message(ANA, "<b>Which?</b>", keyboard=KEYBOARD)
        message = ptb.Message.de_json(telegram.state.chats[ANA].messages[1], None)
        assert message is not None
        assert message.reply_markup is not None
        assert message.reply_markup.inline_keyboard[0][0].callback_data == "del:1"


async def test_an_administrator_is_told_from_a_member() -> None:
    async with a_bot() as (telegram, bot):
        telegram.run(AddUser(id=8, first_name="Ben"))
        telegram.run(MoveBot(chat=GROUP, person=ANA))
        assert (await bot.get_chat_member(GROUP, ANA)).administers
        assert not (await bot.get_chat_member(GROUP, 8)).present


@pytest.mark.parametrize("text", ["", "a < b", "a & b", "<b>open", "<h1>big</h1>", "x" * 5_000])
async def test_what_telegram_would_refuse_is_refused(text: str) -> None:
    async with a_bot() as (_, bot):
        with pytest.raises(InvalidError):
            await bot.send_message(ANA, text)


async def test_failures_are_named_by_what_to_do_next() -> None:
    async with a_bot(limits=CallLimits(attempts_max=1)) as (telegram, bot):
        with pytest.raises(ForbiddenError):
            await bot.send_message(GROUP, "hello")
        with pytest.raises(NotFoundError):
            await bot.send_message(12345, "hello")
        telegram.inject(InjectedFault(status=429, retry_after_s=5))
        with pytest.raises(RetryLaterError) as later:
            await bot.send_message(ANA, "hello")
        assert later.value.after_s == 5
        telegram.inject(InjectedFault(cut=True, late=True))
        with pytest.raises(OutcomeUnknownError):
            await bot.send_message(ANA, "hello")


async def test_a_wrong_token_is_a_reason_to_get_another_and_shows_nowhere() -> None:
    async with a_bot("42:secret-of-mine") as (_, bot):
        with pytest.raises(ReauthRequiredError) as refused:
            await bot.get_me()
        assert "secret-of-mine" not in str(refused.value)


async def test_sending_faster_than_the_limits_is_refused_with_the_wait() -> None:
    async with a_bot(limits=CallLimits(attempts_max=1)) as (telegram, bot):
        await bot.send_message(ANA, "one")
        with pytest.raises(RetryLaterError) as later:
            await bot.send_message(ANA, "two")
        assert later.value.after_s >= 1
        assert telegram.state.refused == 1


async def test_updates_are_pushed_with_the_secret_until_they_are_taken() -> None:
    ok = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    async with serving(answering(ok)) as receiver, a_bot() as (telegram, bot):
        telegram.run(Say(chat=ANA, person=ANA, text="#cal lunch"))
        await bot.set_webhook(receiver.url(), secret_token="s3cret")
        await receiver.received(1)
        [received] = receiver.requests
        assert received.headers["X-Telegram-Bot-Api-Secret-Token"] == "s3cret"
        assert msgspec.json.decode(received.body, type=Update).message is not None
