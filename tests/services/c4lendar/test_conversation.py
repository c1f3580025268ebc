"""Whole conversations: what people write, what the bot answers, what is in their calendars afterwards."""

from __future__ import annotations

import pytest

from holdfast.errors import UnverifiedError
from holdfast.simulators.google import InjectedFault, RevokeGrant
from holdfast.simulators.telegram import MoveBot, Say
from tests.services.c4lendar.harness import ALICE, ANA, BEN, BOB, GROUP, OWNER, Harness, add_group, reference


async def test_an_event_is_made_changed_and_deleted_in_every_account(harness: Harness) -> None:
    await harness.connect(ALICE)
    await harness.connect(BOB)
    answer = await harness.say("#cal team standup tomorrow 9am")
    assert "Event created" in answer
    assert "2/2 accounts" in answer
    assert harness.titles(ALICE) == harness.titles(BOB) == ["team standup"]

    answer = await harness.say(f"#alt {reference(answer)} 10:30, rename to Daily")
    assert "title: team standup → Daily" in answer
    assert [one["start"]["dateTime"][11:16] for one in harness.calendar(ALICE)] == ["10:30"]
    assert harness.titles(BOB) == ["Daily"]

    assert "Event deleted" in await harness.say("#del daily")
    assert harness.titles(ALICE) == harness.titles(BOB) == []
    assert await harness.operations.recent(str(ANA)) == []


async def test_undo_takes_back_the_last_change_for_ten_minutes(quick: Harness) -> None:
    await quick.connect(ALICE)
    await quick.say("#cal lunch tomorrow noon")
    await quick.say("#del")
    assert quick.titles(ALICE) == []
    assert "Last change undone" in await quick.say("#undo")
    assert quick.titles(ALICE) == ["lunch"]
    quick.clock.tick(601)
    assert "older than 10 minutes" in await quick.say("#undo")
    assert quick.titles(ALICE) == ["lunch"]


async def test_a_reply_makes_an_event_of_another_message(quick: Harness) -> None:
    await quick.connect(ALICE)
    await quick.say("dinner friday 8pm at Luigi's")
    message_id = quick.last()["message_id"]
    answer = await quick.say("#cal", reply_to=message_id)
    assert "At Luigi's" in answer
    assert quick.titles(ALICE) == ["dinner"]


async def test_an_unclear_text_is_asked_about_and_the_answer_continues_it(quick: Harness) -> None:
    await quick.connect(ALICE)
    assert "When is it?" in await quick.say("#cal dentist")
    answer = await quick.say("tomorrow 8am", reply_to=quick.last()["message_id"])
    assert "Event created" in answer
    assert quick.titles(ALICE) == ["dentist"]


async def test_several_matches_are_a_choice_and_never_a_guess(quick: Harness) -> None:
    await quick.connect(ALICE)
    await quick.say("#cal team lunch tomorrow noon")
    await quick.say("#cal team dinner tomorrow 8pm")
    assert await quick.say("#del team") == "Which one?"
    assert quick.titles(ALICE) == ["team dinner", "team lunch"]
    button = next(one for one in quick.buttons() if one["text"].startswith("team lunch"))
    assert "Event deleted" in await quick.press(button["callback_data"])
    assert quick.titles(ALICE) == ["team dinner"]


async def test_alt_prefers_reference_then_reply_then_selection_then_newest(quick: Harness) -> None:
    await quick.connect(ALICE)
    first = await quick.say("#cal one tomorrow 9am")
    message_id = quick.last()["message_id"]
    await quick.say("#cal two tomorrow 11am")
    await quick.say(f"#alt {reference(first).lower()} rename to one a")
    assert quick.titles(ALICE) == ["one a", "two"]
    await quick.say("#alt rename to one b")
    assert quick.titles(ALICE) == ["one b", "two"], "the event this person changed last is selected"
    await quick.say("#alt rename to two b", person=BEN)
    await quick.say("#alt rename to one c", reply_to=message_id, person=BEN)
    assert quick.titles(ALICE) == ["one c", "two b"]


async def test_without_an_account_the_bot_says_how_to_connect_one(quick: Harness) -> None:
    assert "#aut" in await quick.say("#cal lunch tomorrow")


async def test_only_administrators_of_a_group_connect_accounts(quick: Harness) -> None:
    add_group(quick)
    await quick.work()
    assert "Only administrators" in await quick.say("#aut", chat=GROUP, person=BEN)
    assert quick.buttons(GROUP) == []
    await quick.connect(ALICE, chat=GROUP, person=ANA)
    assert [one.google_email for one in await quick.operations.accounts(str(GROUP))] == [ALICE]
    [account] = await quick.operations.accounts(str(GROUP))
    assert account.connected_by_telegram_user_id == ANA


async def test_a_link_works_once_and_for_ten_minutes(quick: Harness) -> None:
    await quick.say("#aut")
    url = quick.buttons()[0]["url"]
    await quick.consent(url, ALICE)
    with pytest.raises(UnverifiedError):
        await quick.consent(url, ALICE)
    await quick.say("#aut")
    quick.clock.tick(601)
    with pytest.raises(UnverifiedError):
        await quick.consent(quick.buttons()[0]["url"], ALICE)


async def test_an_unapproved_chat_is_answered_once_an_hour(quick: Harness) -> None:
    assert "not approved" in await quick.say("#cal lunch", chat=BEN, person=BEN)
    assert await quick.say("#cal lunch", chat=BEN, person=BEN) == ""
    assert await quick.say("hello", chat=BEN, person=BEN) == ""
    quick.clock.tick(3_601)
    assert "not approved" in await quick.say("#help /help", chat=BEN, person=BEN)
    assert "Only the owner" in await quick.say("/approve", chat=BEN, person=BEN)
    await quick.say(f"/approve {BEN}", chat=OWNER, person=OWNER)
    assert "#aut" in await quick.say("#cal lunch", chat=BEN, person=BEN)
    await quick.say(f"/revoke {BEN}", chat=OWNER, person=OWNER)
    quick.clock.tick(3_601)
    assert "not approved" in await quick.say("#cal lunch", chat=BEN, person=BEN)


async def test_the_bot_added_by_its_owner_serves_and_by_another_asks(quick: Harness) -> None:
    add_group(quick, ANA)
    await quick.work()
    assert "has to approve" in quick.last(GROUP)["text"]
    quick.telegram.run(MoveBot(chat=GROUP, person=ANA, status="kicked"))
    add_group(quick)
    await quick.work()
    chat = await quick.operations.chat(str(GROUP))
    assert chat is not None
    assert chat.status == "approved"
    assert "Family" in await quick.say("/listchats", chat=OWNER, person=OWNER)


async def test_a_failed_account_is_named_repaired_and_the_message_edited(quick: Harness) -> None:
    await quick.connect(ALICE)
    await quick.connect(BOB)
    quick.google.inject(InjectedFault(count=2, status=503, path="/events", method="POST"))
    quick.telegram.run(Say(chat=ANA, person=ANA, text="#cal lunch tomorrow noon"))
    await quick.work()
    assert "0/2 accounts" in quick.last()["text"]
    quick.clock.tick(30)
    await quick.work()
    assert "2/2 accounts" in quick.last()["text"]
    assert quick.titles(ALICE) == quick.titles(BOB) == ["lunch"]


async def test_an_account_whose_grant_ended_is_named_and_the_others_have_the_event(quick: Harness) -> None:
    await quick.connect(ALICE)
    await quick.connect(BOB)
    quick.google.run(RevokeGrant(email=ALICE))
    quick.clock.tick(4_000)
    answer = await quick.say("#cal lunch tomorrow noon")
    assert "1/2 accounts" in answer
    assert f"{ALICE}: the sign-in has ended" in answer
    assert quick.titles(BOB) == ["lunch"]
    await quick.connect(ALICE)
    assert "2/2 accounts" in await quick.say("#alt 1pm")
    assert quick.titles(ALICE) == ["lunch"]


async def test_dis_ends_the_account_in_this_chat_and_at_google_with_the_last_one(quick: Harness) -> None:
    add_group(quick)
    await quick.work()
    await quick.connect(ALICE)
    await quick.connect(ALICE, chat=GROUP)
    await quick.say("#cal lunch tomorrow noon")
    assert ALICE in await quick.say("#dis")
    assert "is disconnected" in await quick.say(f"#dis {ALICE.upper()}")
    assert await quick.operations.accounts(str(ANA)) == []
    assert await quick.operations.mappings(str(ANA), "x") == []
    quick.clock.tick(4_000)
    assert "1/1 account" in await quick.say("#cal brunch tomorrow 11am", chat=GROUP)
    revocations = [call for call in quick.google.calls if call.path == "/revoke"]
    assert revocations == [], "another chat still uses the grant"
    await quick.say(f"#dis {ALICE}", chat=GROUP)
    assert [call.path for call in quick.google.calls if call.path == "/revoke"] == ["/revoke"]


async def test_view_and_time_zone(quick: Harness) -> None:
    await quick.connect(ALICE)
    assert "America/New_York" in await quick.say("#tz new york")
    await quick.say("#cal lunch tomorrow noon")
    assert quick.calendar(ALICE)[0]["start"]["timeZone"] == "America/New_York"
    assert "lunch" in await quick.say("#view tomorrow")
    assert "No events today" in await quick.say("#view")
    assert "is no time zone" in await quick.say("#tz atlantis")


async def test_what_people_write_can_not_break_a_message(quick: Harness) -> None:
    await quick.connect(ALICE)
    answer = await quick.say("#cal <b>a_b*c</i> & d tomorrow 9am at <script>")
    assert "&lt;b&gt;a_b*c&lt;/i&gt; &amp;" in answer
    assert "Event created" in answer


async def test_an_account_connected_later_gets_the_upcoming_events_by_a_button(quick: Harness) -> None:
    await quick.connect(ALICE)
    await quick.say("#cal lunch tomorrow noon")
    await quick.connect(BOB)
    assert "Connected" in quick.last()["text"]
    await quick.press("Add upcoming events")
    assert quick.titles(BOB) == ["lunch"]


async def test_a_repeated_update_is_handled_once(quick: Harness) -> None:
    await quick.connect(ALICE)
    quick.telegram.run(Say(chat=ANA, person=ANA, text="#cal lunch tomorrow noon"))
    quick.telegram.state.updates.append(quick.telegram.state.updates[-1])
    await quick.work()
    assert quick.titles(ALICE) == ["lunch"]
    assert len(await quick.operations.recent(str(ANA))) == 1
