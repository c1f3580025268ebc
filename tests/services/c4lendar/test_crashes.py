"""A process that dies before or after any write or call: no event is doubled or missing at Google."""

from __future__ import annotations

import contextlib
import os
from typing import Any

import pytest

from holdfast.services.c4lendar.models import EventMapping
from holdfast.simulators.google import InjectedFault
from holdfast.simulators.telegram import Say
from holdfast.store import Query
from tests.kit.fake_channel_provider import CrashError, Fuse
from tests.services.c4lendar.bot_process import fuse_calls, fused_workers
from tests.services.c4lendar.harness import ALICE, ANA, BOB, Harness

# Every moment of a run, or in CI every third.
STEP = int(os.environ.get("HOLDFAST_TEST_CRASH_STEP", "3"))
MOMENTS_MAX = 80


async def _die(harness: Harness, fuse: Fuse, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Work on what is due as another process until its fuse ends; False when the work was done before."""
    worker, runner = fused_workers(harness.runtime, fuse)
    with monkeypatch.context() as patched, contextlib.suppress(CrashError):
        fuse_calls(patched.setattr, fuse)
        while await worker.turn() + await runner.turn():
            pass
    return fuse.blown


async def _recover(harness: Harness) -> None:
    """Another process takes over once the leases of the dead one have ended."""
    for _ in range(4):
        harness.clock.tick(70)
        await harness.work()


async def _check(harness: Harness, titles: list[str]) -> None:
    assert harness.titles(ALICE) == harness.titles(BOB) == sorted(titles)
    assert sorted(event.title for event in await harness.operations.recent(str(ANA))) == sorted(titles)
    query = Query(EventMapping).order_by("-created_at")
    rows = [one.doc async for one in harness.runtime.store.tenant(str(ANA)).scan(query)]
    assert sorted(row.event_title for row in rows) == sorted(titles * 2)
    assert all(row.version for row in rows)


async def test_a_process_that_dies_at_any_moment_doubles_and_loses_nothing(
    quick: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await quick.connect(ALICE)
    await quick.connect(BOB)
    texts = ["#cal lunch tomorrow noon", "#alt 1pm, rename to brunch", "#del"]
    for number, text in enumerate(texts):
        for moment in range(number, MOMENTS_MAX, STEP):
            await quick.say("#cal lunch tomorrow noon") if number else None
            quick.telegram.run(Say(chat=ANA, person=ANA, text=text))
            await quick.receive()
            died = await _die(quick, Fuse(moment), monkeypatch)
            await _recover(quick)
            await _check(quick, [["lunch"], ["brunch"], []][number])
            await quick.say("#del") if number < 2 else None
            if not died:
                assert moment > 15, "a run has more moments than that"
                break
        else:
            pytest.fail("the run has more moments than the test looks at")


@pytest.mark.parametrize(
    "fault", [{"cut": True, "late": True}, {"status": 503, "late": True}, {"status": 500}]
)
async def test_a_lost_answer_of_google_makes_no_second_event(quick: Harness, fault: dict[str, Any]) -> None:
    await quick.connect(ALICE)
    await quick.connect(BOB)
    for count in (1, 2, 5):
        quick.google.inject(InjectedFault(count=count, path="/events", **fault))
        await quick.say("#cal lunch tomorrow noon")
        await _recover(quick)
        await _check(quick, ["lunch"])
        await quick.say("#del")
        await _recover(quick)
        await _check(quick, [])
