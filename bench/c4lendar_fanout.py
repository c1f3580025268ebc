"""An event for ten accounts: from the update to the answer in the chat, when Google takes 300 ms each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from bench.measure import SLOW_TURNS, Goal, Place, Ways, Workload
from holdfast.clock import SystemClock
from holdfast.simulators.google import AddPerson, InjectedFault
from holdfast.simulators.telegram import Say
from tests.services.c4lendar.harness import ANA, Harness, chat_harness

ACCOUNTS = 10
GOOGLE_S = 0.3
ANSWERED_MS = 1_000.0


@asynccontextmanager
async def connected(place: Place, engine: str) -> AsyncIterator[Harness]:
    """A bot at work, with a chat of ten accounts."""
    async with chat_harness(place.url(engine), place.folder(), clock=SystemClock()) as harness:
        for number in range(ACCOUNTS):
            email = f"person{number}@gmail.com"
            harness.google.run(AddPerson(email=email))
            await harness.consent(await harness.link(str(ANA)), email)
        await harness.work()
        stop = asyncio.Event()
        working = asyncio.create_task(harness.runtime.work(stop))
        yield harness
        stop.set()
        await working


@asynccontextmanager
async def answering(place: Place, engine: str) -> AsyncIterator[Ways]:
    numbers = count()

    async def bound() -> float:
        return ANSWERED_MS

    async with connected(place, engine) as harness:

        async def answer() -> float:
            fault = InjectedFault(count=ACCOUNTS, method="POST", path="/events", delay_s=GOOGLE_S)
            harness.google.inject(fault)
            harness.telegram.run(Say(chat=ANA, person=ANA, text=f"#cal event {next(numbers)} tomorrow 9am"))
            messages, began = len(harness.messages()), time.perf_counter()
            await harness.receive()
            async with asyncio.timeout(60):
                while len(harness.messages()) == messages:  # noqa: ASYNC110 - the bot tells nobody
                    await asyncio.sleep(0.001)
            took_ms = (time.perf_counter() - began) * 1_000
            assert f"{ACCOUNTS}/{ACCOUNTS} accounts" in harness.last()["text"]
            return took_ms

        yield Ways(ours=answer, other=bound)


WORKLOADS = [
    Workload(
        name=f"c4lendar: #cal answered for {ACCOUNTS} accounts at {GOOGLE_S * 1_000:.0f} ms each",
        engines=("sqlite full", "postgres"), unit="ms", goal=Goal(1.0, at_most=True), other_name="the bound",
        open=answering, turns=SLOW_TURNS,
    )
]  # fmt: skip
