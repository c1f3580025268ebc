"""Real processes stopped and killed under load: what was answered 2xx is kept, taken over, delivered."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from tests.http.load import Load
from tests.http.processes import announce, holdfast_process, keep_endpoint, running
from tests.kit.receiver import OK, Serving, answering, serving

ACCEPTED = int(os.environ.get("HOLDFAST_TEST_ACCEPTED", "200"))
# More than the longest lease, so that the process whose clock is ahead need not wait for it.
AHEAD_S = "120"
STOP_S_MAX = 30.0


@pytest.fixture(params=["sqlite", "postgres"])
def environ(request: pytest.FixtureRequest, tmp_path: Path) -> Mapping[str, str]:
    """The settings that all processes of a test share."""
    announce(tmp_path)
    url: str = request.getfixturevalue(f"{request.param}_url")
    return {"HOLDFAST_STORE": url, "HOLDFAST_ALLOW": "127.0.0.1"}


class _Holding:
    """A receiver that answers so many, then holds back what comes until the sender is killed."""

    def __init__(self, answered: int) -> None:
        self._answered = answered
        self.killed = False
        self.held = asyncio.Event()

    async def __call__(
        self, state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            await state.read(reader)
            if not self.killed and len(state.requests) > self._answered:
                self.held.set()
                await reader.read()
                return
            writer.write(OK)
            await writer.drain()


def _names(there: Serving) -> Counter[str]:
    return Counter(request.body.decode() for request in there.requests)


async def _all_arrive(there: Serving, names: set[str]) -> None:
    async with asyncio.timeout(60):
        while not names <= set(_names(there)):
            there.arrived.clear()
            await there.arrived.wait()


@contextlib.asynccontextmanager
async def _taking_over(
    home: Path, environ: Mapping[str, str], *, ahead_s: str = AHEAD_S
) -> AsyncIterator[None]:
    async with running(home, "tests.http.later_worker", ahead_s, environ=environ) as (worker, said):
        assert said == "works\n"
        yield
        worker.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(worker.wait(), 60) == 0


async def _kill(process: asyncio.subprocess.Process) -> None:
    process.kill()
    assert await process.wait() == -signal.SIGKILL


async def test_what_a_killed_server_had_accepted_is_delivered_by_another_process(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    holding = _Holding(answered=ACCEPTED // 4)
    async with serving(holding) as there:
        await keep_endpoint(tmp_path, environ, there.url())
        async with holdfast_process(tmp_path, "serve", "--port", "0", environ=environ) as (server, address):
            load = Load(address, ACCEPTED)
            sending = asyncio.create_task(load.run())
            await asyncio.wait_for(asyncio.gather(load.enough.wait(), holding.held.wait()), 60)
            await _kill(server)
            await asyncio.wait_for(sending, 60)
        assert len(load.accepted) >= ACCEPTED
        await _judge(there, holding, load.accepted, home=tmp_path, environ=environ)


async def test_what_a_killed_worker_held_is_delivered_by_another(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    holding = _Holding(answered=ACCEPTED // 4)
    serve = ("serve", "--port", "0", "--no-work")
    async with serving(holding) as there:
        await keep_endpoint(tmp_path, environ, there.url())
        async with holdfast_process(tmp_path, *serve, environ=environ) as (_, address):
            async with holdfast_process(tmp_path, "work", environ=environ) as (worker, _):
                load = Load(address, ACCEPTED)
                sending = asyncio.create_task(load.run())
                await asyncio.wait_for(asyncio.gather(load.enough.wait(), holding.held.wait()), 60)
                await _kill(worker)
            load.stop.set()
            await asyncio.wait_for(sending, 60)
            await _judge(there, holding, load.accepted, home=tmp_path, environ=environ)


async def test_what_a_stopped_server_had_accepted_is_delivered_once(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    async with serving(answering(OK)) as there:
        await keep_endpoint(tmp_path, environ, there.url())
        async with holdfast_process(tmp_path, "serve", "--port", "0", environ=environ) as (server, address):
            load = Load(address, ACCEPTED)
            sending = asyncio.create_task(load.run())
            await asyncio.wait_for(asyncio.gather(load.enough.wait(), there.received(20)), 60)
            server.terminate()
            assert await asyncio.wait_for(server.wait(), STOP_S_MAX) == 0
            await asyncio.wait_for(sending, 60)
        # With the right time: what was given back in good order waits for nobody's lease.
        async with _taking_over(tmp_path, environ, ahead_s="0"):
            await _all_arrive(there, load.accepted)
    assert set(_names(there).values()) == {1}


async def _judge(
    there: Serving, holding: _Holding, accepted: set[str], *, home: Path, environ: Mapping[str, str]
) -> None:
    """Another process delivers all that was accepted; only what the killed one had in hand comes twice."""
    before = _names(there)
    assert set(before) < accepted
    holding.killed = True
    async with _taking_over(home, environ):
        await _all_arrive(there, accepted)
    twice = {name for name, count in _names(there).items() if count > 1}
    assert twice <= set(before)
    assert {request.headers["webhook-id"] for request in there.requests} >= accepted
