"""One account fails in every way: it is named, tried again, repaired, and the message says so in the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.providers.google_calendar import GoogleCalendar
from holdfast.providers.rest import CallLimits
from holdfast.services.c4lendar import calendars
from holdfast.simulators.google import AddPerson, InjectedFault, RevokeGrant
from tests.services.c4lendar.harness import ALICE, ANA, BOB, Harness

ACCOUNTS = 10


def _message(harness: Harness, title: str) -> str:
    """The bot's message about an event, as it is now."""
    [text] = [one["text"] for one in harness.messages() if f"\n{title}\n" in one["text"]]
    return str(text)


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"status": 403}, "Google does not allow it"),
        ({"status": 429}, "Google is unavailable"),
        ({"status": 500}, "Google is unavailable"),
        ({"status": 503}, "Google is unavailable"),
        ({"hang": True}, "Google is unavailable"),
    ],
    ids=str,
)
async def test_a_failed_account_is_named_repaired_and_the_message_edited(
    quick: Harness, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any], reason: str
) -> None:
    await quick.connect(ALICE)
    await quick.connect(BOB)
    # A call that hangs ends by its time limit, which is shorter here.
    limits = CallLimits(call_s=0.5 if "hang" in fault else 30.0, attempts_max=1)
    monkeypatch.setattr(calendars, "LIMITS", limits)
    quick.google.inject(InjectedFault(path="/events", method="POST", **fault))
    answer = await quick.say("#cal lunch tomorrow noon")
    assert "1/2 accounts" in answer
    assert f"{reason} – will be tried again" in answer
    quick.clock.tick(30)
    await quick.work()
    assert "2/2 accounts" in _message(quick, "lunch")
    assert reason not in _message(quick, "lunch")
    assert quick.titles(ALICE) == quick.titles(BOB) == ["lunch"]


async def test_an_account_that_was_revoked_catches_up_once_it_is_connected_again(quick: Harness) -> None:
    await quick.connect(ALICE)
    await quick.connect(BOB)
    quick.google.run(RevokeGrant(email=ALICE))
    quick.clock.tick(4_000)
    answer = await quick.say("#cal lunch tomorrow noon")
    assert f"{ALICE}: the sign-in has ended" in answer
    await quick.connect(ALICE)
    quick.clock.tick(3_600)
    await quick.work()
    assert "2/2 accounts" in _message(quick, "lunch")
    assert quick.titles(ALICE) == quick.titles(BOB) == ["lunch"]


async def test_all_accounts_are_written_at_once(quick: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each insert waits for all ten: one after the other they would wait for ever."""
    for number in range(ACCOUNTS):
        email = f"person{number}@gmail.com"
        quick.google.run(AddPerson(email=email))
        await quick.consent(await quick.link(str(ANA)), email)
    await quick.work()
    together, insert = asyncio.Barrier(ACCOUNTS), GoogleCalendar.insert_event

    async def insert_together(*given: Any, **named: Any) -> Any:
        await together.wait()
        return await insert(*given, **named)

    monkeypatch.setattr(GoogleCalendar, "insert_event", insert_together)
    async with asyncio.timeout(30):
        assert f"{ACCOUNTS}/{ACCOUNTS} accounts" in await quick.say("#cal lunch tomorrow noon")
