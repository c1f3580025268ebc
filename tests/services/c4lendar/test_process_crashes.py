"""A process that is killed while it brings an event into three accounts, and another that finishes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast.clock import SystemClock
from holdfast.kit.runs import RunDocument
from holdfast.services.c4lendar.models import BotEvent, ChatQueue, EventMapping
from holdfast.simulators.google import AddPerson, InjectedFault
from holdfast.simulators.telegram import Say
from holdfast.store import Query
from tests.faults.controlled_process import Order, run_processes
from tests.kit.eventually import until, until_found
from tests.services.c4lendar.harness import ALICE, ANA, BOB, Harness, chat_harness

PROCESS = "tests.services.c4lendar.bot_process"
ACCOUNTS = (ALICE, BOB, "carol@gmail.com")
# Every moment of a run, or in CI a few of them.
STEP = int(os.environ.get("HOLDFAST_TEST_KILL_STEP", "8"))
MOMENTS = 28


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_url"))


async def test_a_killed_process_doubles_and_loses_nothing(url: str, tmp_path: Path) -> None:
    async with chat_harness(url, tmp_path, clock=SystemClock()) as harness:
        harness.google.run(AddPerson(email=ACCOUNTS[2]))
        for email in ACCOUNTS:
            await harness.connect(email)
        order = {"url": url, "home": str(tmp_path), "settings": harness.config.service_settings["c4lendar"]}
        before = await _ended_runs(harness)
        titles: list[str] = []
        for death in [*range(2, MOMENTS, STEP), "before the insert", "after the insert"]:
            titles.append(f"event {death}")
            harness.telegram.run(Say(chat=ANA, person=ANA, text=f"#cal {titles[-1]} tomorrow noon"))
            await harness.receive()
            if isinstance(death, int):
                await _die_at(death, order)
            else:
                await _die_inside_call(harness, order, late=death == "after the insert")
            await _finish(harness, order, before + len(titles))
            await _check(harness, titles)


async def _die_at(moment: int, order: Order) -> None:
    """A process kills itself before or after a write or a call."""
    async with run_processes(PROCESS, "work", order | {"moment": moment}) as (old,):
        with pytest.raises(RuntimeError, match="ended with -9"):
            await old.hear()


async def _die_inside_call(harness: Harness, order: Order, *, late: bool) -> None:
    """A process is killed while one account's insert hangs, before or after it took effect."""
    harness.google.inject(InjectedFault(method="POST", path="/events", hang=True, late=late))
    async with run_processes(PROCESS, "work", order | {"moment": None}) as (old,):
        await until(lambda: not harness.google.faults._pending)
        await old.kill()


async def _finish(harness: Harness, order: Order, count: int) -> None:
    async def ended() -> bool:
        return await _ended_runs(harness) >= count

    async with run_processes(PROCESS, "work", order | {"moment": None}) as (new,):
        await until_found(ended)
        new.say("stop")
        assert await new.end() == ["stopped"]


async def _ended_runs(harness: Harness) -> int:
    """How many updates have been decided, carried out and answered."""
    query = Query(RunDocument).order_by("-created_at")
    runs = [one.doc async for one in harness.runtime.store.tenant(str(ANA)).scan(query)]
    return sum(run.completed_at is not None for run in runs)


async def _check(harness: Harness, titles: list[str]) -> None:
    store = harness.runtime.store.tenant(str(ANA))
    assert [harness.titles(email) for email in ACCOUNTS] == [sorted(titles)] * 3
    events = [one.doc.title async for one in store.scan(Query(BotEvent).order_by("-created_at"))]
    assert sorted(events) == sorted(titles)
    rows = [one.doc async for one in store.scan(Query(EventMapping).order_by("-created_at"))]
    assert sorted(row.event_title for row in rows) == sorted(titles * 3)
    assert {(row.version, row.error) for row in rows} == {(1, "")}
    at_google = [event["id"] for email in ACCOUNTS for event in harness.calendar(email)]
    assert sorted(row.google_event_id for row in rows) == sorted(at_google)
    assert await store.get(ChatQueue, str(ANA)) is None
