"""Messages to Telegram keep its limits and are read by another library; its updates are accepted once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
import telegram as ptb
import uvicorn

from holdfast.clock import SystemClock
from holdfast.http.app import create_app
from holdfast.simulators.telegram import AddUser, Say, SetLimits
from tests.faults.controlled_process import run_processes
from tests.services.c4lendar.harness import ALICE, ANA, GROUP, SECRET, Harness, add_group, chat_harness
from tests.serving import served

# 500 in a thorough run; fewer take a few seconds, because the limits are real.
MESSAGES = int(os.environ.get("HOLDFAST_TEST_CHAT_MESSAGES", "90"))
CHATS = 40


async def test_messages_of_two_processes_keep_the_limits(sqlite_url: str, tmp_path: Path) -> None:
    limits = {"messages_per_s": 30, "messages_per_chat_s": 1}
    async with chat_harness(sqlite_url, tmp_path, settings=limits, clock=SystemClock()) as harness:
        for number in range(CHATS):
            harness.telegram.run(AddUser(id=1_000 + number, first_name=f"Person {number}"))
        harness.telegram.run(SetLimits(enforced=True))
        before = len(harness.telegram.calls)
        messages = [(1_000 + number // 2 % CHATS, f"message {number}") for number in range(MESSAGES)]
        order = {
            "url": sqlite_url,
            "home": str(tmp_path),
            "settings": harness.config.service_settings["c4lendar"],
        }
        orders = [order | {"messages": messages[half::2]} for half in (0, 1)]
        async with run_processes("tests.services.c4lendar.bot_process", "send", *orders) as senders:
            await asyncio.gather(*(one.end(within_s=300.0) for one in senders))
        texts = [one["text"] for n in range(CHATS) for one in harness.messages(1_000 + n)]
        assert sorted(texts) == sorted(f"message {number}" for number in range(MESSAGES))
        calls = len(harness.telegram.calls) - before
        assert calls <= 2 * MESSAGES, "the limits are kept here, not found out by refusals"


async def test_another_library_reads_every_message_and_keyboard(quick: Harness) -> None:
    add_group(quick)
    await quick.work()
    await quick.connect(ALICE)
    await quick.connect(ALICE, chat=GROUP)
    for text in (
        "#cal team lunch tomorrow noon", "#cal team <dinner> & more tomorrow 8pm", "#alt 9pm", "#del team",
        "#view week", "#dis", "#tz", "#undo", "/help", "#cal dentist", "#alt EVT-0000",
        "#cal x every monday 9am",
    ):  # fmt: skip
        await quick.say(text)
    await quick.press(quick.buttons()[0]["callback_data"]) if quick.buttons() else None
    sent = [one for chat in (ANA, GROUP) for one in quick.messages(chat) if one["from"]["is_bot"]]
    assert len(sent) > 12
    read = [ptb.Message.de_json(one, None) for one in sent]
    assert all(one.text for one in read)
    boards = [one.reply_markup.inline_keyboard for one in read if one.reply_markup]
    buttons = [button for board in boards for row in board for button in row]
    assert any(button.callback_data for button in buttons)
    assert any(button.url for button in buttons)


async def _post(harness: Harness, body: str, secret: str = SECRET) -> int:
    app: Any = create_app(harness.runtime)
    async with served(uvicorn.Config(app, log_level="warning")) as url, aiohttp.ClientSession() as session:
        headers = {"x-telegram-bot-api-secret-token": secret, "content-type": "application/json"}
        async with session.post(f"{url}/c4lendar/telegram-webhook", data=body, headers=headers) as answer:
            return answer.status


@pytest.mark.parametrize(
    ("secret", "body", "status"), [("wrong", "{}", 401), (SECRET, "no JSON", 400), (SECRET, "[]", 400)]
)
async def test_a_bad_secret_or_body_is_refused(quick: Harness, secret: str, body: str, status: int) -> None:
    assert await _post(quick, body, secret) == status


async def test_updates_as_another_library_writes_them_are_accepted_once(quick: Harness) -> None:
    await quick.connect(ALICE)
    quick.telegram.run(Say(chat=ANA, person=ANA, text="#cal lunch tomorrow noon"))
    theirs = ptb.Update.de_json(quick.telegram.state.updates.popleft(), None)
    assert theirs is not None
    assert [await _post(quick, theirs.to_json()) for _ in range(2)] == [200, 200]
    await quick.work()
    assert quick.titles(ALICE) == ["lunch"]


async def test_every_character_arrives_as_it_was_written(quick: Harness) -> None:
    await quick.connect(ALICE)
    odd = "".join(map(chr, range(33, 127))).replace("#", "").replace("@", "") + "ß😀\u202eé"
    answer = await quick.say(f"#cal rename {odd} tomorrow 9am")
    assert "1/1 accounts" in answer, "the simulator refuses what Telegram would"
    assert msgspec.json.decode(msgspec.json.encode(answer)) == answer
