"""Idempotency across processes: done once by all of them together, and done although one was killed."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from holdfast.errors import InProgressError
from holdfast.kit import NO_TENANT
from holdfast.kit.idempotency import Idempotency
from holdfast.store import Store
from holdfast.testing import ManualClock
from tests.faults.controlled_process import run_processes
from tests.faults.idempotency_worker import Sale, opened, sell

WORKER = "tests.faults.idempotency_worker"
PROCESSING_S = 60.0

pytestmark = pytest.mark.parametrize("url", ["sqlite", "postgres", "firestore"], indirect=True)


async def _made(store: Store) -> int:
    found = await store.tenant(NO_TENANT).get(Sale, "s")
    return 0 if found is None else found.doc.made


async def test_fifty_requests_from_five_processes_do_the_work_once(url: str) -> None:
    async with opened(url) as store:
        await store.migrate()
        orders = [{"url": url, "me": f"w{n}"} for n in range(5)]
        async with run_processes(WORKER, "callers", *orders) as callers:
            for caller in callers:
                assert await caller.hear() == "open"
            for caller in callers:
                caller.say("go")
            given = [pair for caller in callers for pair in json.loads((await caller.end())[-1])]
        assert await _made(store) == 1
    assert len(given) == 50
    assert len({body for body, _ in given}) == 1
    assert sum(not replayed for _, replayed in given) == 1


async def test_the_work_of_a_killed_process_is_taken_over_when_its_time_is_over(url: str) -> None:
    async with opened(url) as store:
        await store.migrate()
        order = {"url": url, "me": "killed", "processing_s": PROCESSING_S}
        async with run_processes(WORKER, "stuck", order) as (stuck,):
            assert await stuck.hear() == "working"
            await stuck.kill()
            with pytest.raises(InProgressError):
                await Idempotency(store).run("k", b"body", sell("too early"))
        later = ManualClock(store.clock.now() + timedelta(seconds=PROCESSING_S))
        async with opened(url, later) as store_later:
            given = await Idempotency(store_later).run("k", b"body", sell("successor"))
        assert (given.answer.body, given.replayed) == ("successor", False)
        assert await _made(store) == 1


async def test_a_paused_process_that_was_overtaken_does_nothing_and_gets_the_answer(url: str) -> None:
    async with opened(url) as store:
        await store.migrate()
        order = {"url": url, "me": "paused", "processing_s": 0.5}
        async with run_processes(WORKER, "stuck", order) as (stuck,):
            assert await stuck.hear() == "working"
            stuck.pause()
            given = await Idempotency(store).run("k", b"body", sell("successor"), wait_s=20)
            stuck.say("go on")
            stuck.resume()
            await stuck.end()
        assert given.answer.body == "successor"
        assert await _made(store) == 1
