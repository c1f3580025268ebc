"""Updates of one chat take effect in the order in which they were sent, whatever becomes of one of them."""

from __future__ import annotations

import asyncio

from holdfast.kit.runs import RunDocument, Runs
from holdfast.services.c4lendar.chat_queue import LOOK_S
from holdfast.services.c4lendar.models import ChatQueue
from holdfast.simulators.telegram import InjectedFault, Say
from holdfast.store import Query
from tests.services.c4lendar.harness import ALICE, ANA, BEN, GROUP, Harness, add_group

TEXTS = (
    "#cal lunch tomorrow noon", "#alt 1pm", "#alt rename to brunch", "#cal tea tomorrow 5pm",
    "#del lunch", "#del brunch",
)  # fmt: skip


def say_all(harness: Harness, *texts: str) -> None:
    for text in texts:
        harness.telegram.run(Say(chat=ANA, person=ANA, text=text))


async def start_all(harness: Harness) -> None:
    """Start the runs of all updates before any of them decides."""
    await harness.receive()
    while await harness.runtime.inbox_worker.turn():
        pass


async def test_commands_sent_within_a_moment_are_decided_in_order(harness: Harness) -> None:
    await harness.connect(ALICE)
    say_all(harness, *TEXTS)
    await start_all(harness)
    await harness.work()
    assert harness.titles(ALICE) == ["tea"]
    events = {event.title: event for event in await harness.operations.recent(str(ANA), deleted=True)}
    assert events["brunch"].deleted
    assert [event.version for event in (events["brunch"], events["tea"])] == [4, 1]
    assert await harness.runtime.store.tenant(str(ANA)).get(ChatQueue, str(ANA)) is None


async def test_updates_that_come_in_the_wrong_order_are_put_right(quick: Harness) -> None:
    await quick.connect(ALICE)
    say_all(quick, "/help", TEXTS[0], "#alt rename to first", "#alt rename to second")
    updates = quick.telegram.state.updates
    updates[2], updates[3] = updates[3], updates[2]
    await start_all(quick)
    await quick.work()
    assert quick.titles(ALICE) == ["second"]


async def test_a_chat_does_not_wait_for_another(quick: Harness) -> None:
    add_group(quick)
    await quick.work()
    quick.telegram.inject(InjectedFault(count=100, status=500, path="/getChatMember"))
    quick.telegram.run(Say(chat=GROUP, person=BEN, text="#aut"))
    quick.telegram.run(Say(chat=GROUP, person=BEN, text="/help"))
    await quick.work()
    assert "#cal" in await quick.say("/help")
    assert "#cal" not in quick.last(GROUP)["text"], "the group's second update waits for its first"


async def test_an_update_that_fails_for_good_lets_the_next_one_go_on(quick: Harness) -> None:
    await quick.connect(ALICE)
    say_all(quick, *TEXTS[:2])
    await start_all(quick)
    store = quick.runtime.store.tenant(str(ANA))
    runs = (
        await store.query(Query(RunDocument).where("status", "==", "pending").order_by("-created_at"))
    ).docs
    first = min(runs, key=lambda run: run.input["update_id"])
    await Runs(store).cancel(first.id)
    quick.clock.tick(LOOK_S)
    await quick.work()
    assert "no event yet" in quick.last()["text"]
    assert await store.get(ChatQueue, str(ANA)) is None


async def test_updates_that_are_received_at_once_are_all_decided(quick: Harness) -> None:
    await quick.connect(ALICE)
    say_all(quick, *(f"#cal event {number} tomorrow 9am" for number in range(10)))
    await asyncio.gather(*(quick.receive() for _ in range(10)))
    await quick.work()
    assert len(quick.titles(ALICE)) == 10
