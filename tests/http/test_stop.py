"""Real processes: what was accepted is kept when a server is told to stop, or is killed, under load."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from holdfast.config import load_config
from holdfast.kit.inbox import InboxItem
from holdfast.runtime import Runtime
from holdfast.server import listen, live
from holdfast.service import Context, Parts, Service
from holdfast.store import Query, Store
from tests.http.load import Load
from tests.http.processes import announce, holdfast_process
from tests.http.server_harness import SECRET, SERVICE, TENANT, Echo

ACCEPTED = int(os.environ.get("HOLDFAST_TEST_ACCEPTED", "200"))
STOP_S_MAX = 30.0


async def _under_load(home: Path, end: signal.Signals) -> tuple[set[str], int]:
    """Serve, load, signal; gives what was accepted and the exit code."""
    announce(home)
    async with holdfast_process(home, "serve", "--port", "0") as (process, address):
        load = Load(address, ACCEPTED)
        sending = asyncio.create_task(load.run())
        await asyncio.wait_for(load.enough.wait(), 60)
        process.send_signal(end)
        code = await asyncio.wait_for(process.wait(), STOP_S_MAX)
        await asyncio.wait_for(sending, 60)
    return load.accepted, code


async def _looking(home: Path, look: Callable[[Runtime], Awaitable[None]]) -> None:
    config = load_config({"home": home / "h"}, environ={})
    runtime = await Runtime.open(config, services=[SERVICE])
    try:
        await look(runtime)
    finally:
        await runtime.close()


async def _kept(runtime: Runtime, names: set[str]) -> bool:
    found = await runtime.store.tenant(TENANT).get_many(InboxItem, [f"echoes_{name}" for name in names])
    return all(found)


async def test_told_to_stop_under_load_it_has_kept_all_it_accepted_and_holds_nothing(tmp_path: Path) -> None:
    accepted, code = await _under_load(tmp_path, signal.SIGTERM)
    assert code == 0
    assert len(accepted) >= ACCEPTED

    async def look(runtime: Runtime) -> None:
        assert await _kept(runtime, accepted)
        held = Query(InboxItem).where("status", "==", "processing").order_by("-received_at")
        assert await runtime.store.tenant(TENANT).count(held) == 0

    await _looking(tmp_path, look)


async def test_loops_end_before_their_store_does_also_where_it_never_came_to_serving(tmp_path: Path) -> None:
    ends: list[str] = []

    class Reading:
        def __init__(self, store: Store) -> None:
            self.store, self.runs = store, asyncio.Event()

        async def run(self, stop: asyncio.Event) -> None:
            self.runs.set()
            await stop.wait()
            ends.append("loop" if await self.store.get(Echo, "none") is None else "?")

    made: list[Reading] = []

    def build(context: Context) -> Parts:
        made.append(Reading(context.store))

        async def close() -> None:
            ends.append("parts")

        return Parts(loops={"reading": made[0]}, close=close)

    async def greet(runtime: Runtime, address: str) -> None:
        await made[0].runs.wait()
        raise KeyError("the greeting fails, or somebody presses Ctrl-C")

    reader = Service(name="reader", summary="Reads.", documents=[Echo], build=build)
    config = load_config({"home": tmp_path / "h"}, environ={})
    with listen("127.0.0.1", 0) as listener, pytest.raises(KeyError):
        await live(config, listener, services=[reader], greet=greet)
    assert ends == ["loop", "parts"]


async def test_a_start_that_fails_closes_what_was_opened(tmp_path: Path) -> None:
    ends: list[str] = []

    def build(context: Context) -> Parts:
        async def start() -> None:
            raise KeyError("it can't")

        async def close() -> None:
            ends.append("parts")

        return Parts(start=start, close=close)

    failing = Service(name="failing", summary="Fails.", documents=[], build=build)
    with pytest.raises(KeyError):
        await Runtime.open(load_config({"home": tmp_path / "h"}, environ={}), services=[failing])
    assert ends == ["parts"]


async def test_killed_under_load_it_has_kept_all_it_accepted(tmp_path: Path) -> None:
    accepted, code = await _under_load(tmp_path, signal.SIGKILL)
    assert code == -signal.SIGKILL

    async def look(runtime: Runtime) -> None:
        assert await _kept(runtime, accepted)

    await _looking(tmp_path, look)


async def test_a_server_without_work_leaves_it_to_a_working_process(tmp_path: Path) -> None:
    announce(tmp_path)
    serve = ("serve", "--port", "0", "--no-work", "--only", "echo-chamber")
    async with holdfast_process(tmp_path, *serve) as (_, address):
        headers = {"x-word": SECRET, "x-name": "m1"}
        async with (
            aiohttp.ClientSession(address) as client,
            client.post("/webhook", headers=headers) as answer,
        ):
            assert answer.status == 202

        async def look(runtime: Runtime) -> None:
            assert await runtime.store.get(Echo, "m1") is None
            subscription = runtime.store.watch(Echo)
            async with holdfast_process(tmp_path, "work") as (worker, said):
                assert "inbox" in said
                async with asyncio.timeout(30):
                    while await runtime.store.get(Echo, "m1") is None:
                        await subscription.wait(0.2)
                worker.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(worker.wait(), STOP_S_MAX) == 0

        await _looking(tmp_path, look)
