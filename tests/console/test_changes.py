"""The stream of changes: told soon, together, also of other processes, and never in the way of a stop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from holdfast.app import open_store
from holdfast.config import load_config
from holdfast.errors import RetryLaterError
from holdfast.http import change_stream as hub
from holdfast.kit.access import ApiTokens
from holdfast.kit.channels import Watch
from holdfast.kit.outbox import Endpoint
from holdfast.model import Caller
from holdfast.model.access import SERVICE
from holdfast.runtime import KIT_DOCUMENTS, Runtime
from holdfast.store import create, put
from holdfast.testing import ManualClock
from tests.console.console_harness import ConsoleHarness, console
from tests.examples import lanterns
from tests.examples.lanterns import Lantern
from tests.kit.eventually import until


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    async with console(tmp_path, services=[lanterns.service]) as made:
        yield made


@contextlib.asynccontextmanager
async def _listening(address: str, token: str) -> AsyncIterator[AsyncIterator[set[str]]]:
    """The sets of topics that a stream tells, once it is open."""
    headers = {"authorization": f"Bearer {token}"}
    async with (
        aiohttp.ClientSession(address) as session,
        session.get("/api/v1/changes", headers=headers) as got,
    ):
        assert got.status == 200
        assert got.headers["content-type"].startswith("text/event-stream")
        yield _told(got)


async def _told(answer: aiohttp.ClientResponse) -> AsyncIterator[set[str]]:
    async for line in answer.content:
        if line.startswith(b": alive"):
            yield set()
        if line.startswith(b"data: "):
            yield set(json.loads(line.removeprefix(b"data: ")))


def _endpoint(harness: ConsoleHarness, id: str) -> Endpoint:
    return Endpoint(id=id, url="https://rms.example", created_at=harness.runtime.clock.now())


async def test_a_commit_is_told_by_its_topic(harness: ConsoleHarness) -> None:
    token = await ApiTokens(harness.runtime.store).create("t", role="admin")
    async with asyncio.timeout(30), _listening(harness.address, token) as told:
        assert await anext(told) == set()
        await harness.runtime.store.tenant("-").commit(put(Lantern(id="l1")))
        assert "lanterns" in await anext(told)


async def test_many_changes_are_told_together(harness: ConsoleHarness) -> None:
    token = await ApiTokens(harness.runtime.store).create("t", role="admin")
    async with asyncio.timeout(30), _listening(harness.address, token) as told:
        await anext(told)
        began = time.monotonic()
        for number in range(100):
            await harness.runtime.store.tenant("-").commit(
                put(_endpoint(harness, f"e{number}")), put(Lantern(id=str(number)))
            )
        took, seen, events = time.monotonic() - began, set[str](), 0
        while not {"lanterns", "endpoints"} <= seen:
            seen |= await anext(told)
            events += 1
        assert events <= 2 + took / hub.APART_S


@pytest.mark.parametrize("engine", ["sqlite", "postgres", "firestore"])
async def test_what_another_process_commits_is_told_too(
    request: pytest.FixtureRequest, tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    monkeypatch.setattr(hub, "EVERYTHING_S", 90.0)
    async with console(tmp_path, store=url) as harness:
        other = await open_store(url, KIT_DOCUMENTS, env=harness.runtime.config.prefix)
        token = await ApiTokens(harness.runtime.store).create("t", role="admin")
        subscription = harness.runtime.store.watch(Endpoint)
        try:
            # An engine that begins to listen may notify of everything.
            await other.tenant("-").commit(create(_endpoint(harness, "first")))
            assert await subscription.wait(30)
            async with asyncio.timeout(60), _listening(harness.address, token) as told:
                await anext(told)
                await other.tenant("-").commit(create(_endpoint(harness, "second")))
                while "endpoints" not in await anext(told):
                    pass
        finally:
            subscription.close()
            await other.close()


async def test_everything_is_told_every_so_often_also_where_one_topic_never_rests(
    sqlite_url: str, clock: ManualClock
) -> None:
    store = await open_store(sqlite_url, KIT_DOCUMENTS, clock=clock)
    await store.migrate()
    change_stream = hub.ChangeStream(store, {"busy": (Endpoint,), "quiet": (Watch,)})
    told: list[frozenset[str]] = []

    async def listen() -> None:
        async for topics in change_stream.stream(SERVICE):
            told.append(topics)  # noqa: PERF401 - read while it grows

    listening = asyncio.create_task(listen())
    try:
        await until(lambda: bool(told))
        at = clock.now()
        for number in range(int(hub.EVERYTHING_S) + 3):
            before = len(told)
            endpoint = Endpoint(id=f"e{number}", tenant_id="acme", url="https://rms.example", created_at=at)
            await store.privileged().commit(create(endpoint))
            while len(told) == before:
                await clock.advance(1)
        assert frozenset({"busy"}) in told
        assert frozenset({hub.EVERYTHING}) in told
    finally:
        change_stream.close()
        await clock.advance(1)
        await listening
        await store.close()


async def test_only_so_many_may_listen(harness: ConsoleHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "STREAMS_MAX", 1)
    token = await ApiTokens(harness.runtime.store).create("t", role="admin")
    async with asyncio.timeout(30), _listening(harness.address, token) as told:
        await anext(told)
        visitor = harness.visitor()
        status, text, headers = await visitor.ask(
            "GET", "/api/v1/changes", headers={"authorization": f"Bearer {token}"}
        )
        assert (status, headers["retry-after"]) == (503, "10")
        assert "too many listen" in text
        with pytest.raises(RetryLaterError):
            harness.surface.changes.stream(SERVICE)


async def test_one_caller_cant_take_every_stream(
    harness: ConsoleHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "STREAMS_PER_CALLER_MAX", 1)
    tokens = [await ApiTokens(harness.runtime.store).create("t", role="viewer") for _ in range(2)]
    async with asyncio.timeout(30), _listening(harness.address, tokens[0]) as told:
        await anext(told)
        refused = await harness.visitor().ask(
            "GET", "/api/v1/changes", headers={"authorization": f"Bearer {tokens[0]}"}
        )
        assert (refused[0], refused[2]["retry-after"]) == (429, "10")
        async with _listening(harness.address, tokens[1]) as other:
            await anext(other)


async def test_of_many_streams_asked_for_at_once_one_caller_gets_its_share(harness: ConsoleHarness) -> None:
    caller = Caller(user_id="user:ann", roles={"acme": "viewer"})
    streams = [harness.surface.changes.stream(caller) for _ in range(hub.STREAMS_PER_CALLER_MAX + 5)]
    begun = [await anext(one, None) for one in streams]
    assert begun.count(frozenset()) == hub.STREAMS_PER_CALLER_MAX
    for one in streams:
        await one.aclose()  # type: ignore[attr-defined]


async def test_a_tenants_viewer_learns_nothing_of_what_other_tenants_do(
    sqlite_url: str, clock: ManualClock
) -> None:
    store = await open_store(sqlite_url, KIT_DOCUMENTS, clock=clock)
    await store.migrate()
    change_stream = hub.ChangeStream(store, {"endpoints": (Endpoint,)})
    told: dict[str, list[frozenset[str]]] = {"viewer": [], "platform": []}
    callers = {"viewer": Caller(user_id="user:ann", roles={"acme": "viewer"}), "platform": SERVICE}

    async def listen(name: str) -> None:
        async for topics in change_stream.stream(callers[name]):
            told[name].append(topics)

    listening = [asyncio.create_task(listen(name)) for name in told]
    try:
        await until(lambda: all(told.values()))
        foreign = Endpoint(id="e1", tenant_id="other", url="https://rms.example", created_at=clock.now())
        await store.privileged().commit(create(foreign))
        while len(told["platform"]) < 2:
            await clock.advance(0.1)
        assert told["viewer"] == [frozenset()]
        while len(told["viewer"]) < 2:
            await clock.advance(1)
        assert told["viewer"] == [frozenset(), frozenset({hub.EVERYTHING})]
    finally:
        change_stream.close()
        await clock.advance(1)
        await asyncio.gather(*listening)
        await store.close()


async def test_who_hangs_up_makes_room_and_nobody_listening_means_no_subscriptions(
    harness: ConsoleHarness,
) -> None:
    token = await ApiTokens(harness.runtime.store).create("t", role="admin")
    async with asyncio.timeout(60):
        async with _listening(harness.address, token) as told:
            await anext(told)
            assert harness.surface.changes.listening
        while harness.surface.changes.listening:
            await harness.runtime.store.tenant("-").commit(put(Lantern(id="l1")))
            await asyncio.sleep(0.01)


def test_a_server_with_open_streams_stops_at_once(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast"]
    token = asyncio.run(_token(tmp_path / ".holdfast"))
    with subprocess.Popen(
        [*command, "serve", "--port", "0"], cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
        text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stderr is not None
            address = re.search(r"http://\S+", process.stderr.readline())
            assert address is not None
            took = asyncio.run(_stop_while_listening(process, address[0], token))
            assert took < 20
            assert process.stderr.read() == ""
        finally:
            process.kill()


async def _token(home: Path) -> str:
    runtime = await Runtime.open(load_config({"home": home}, environ={}))
    try:
        return await ApiTokens(runtime.store).create("t", role="admin")
    finally:
        await runtime.close()


async def _stop_while_listening(process: subprocess.Popen[str], address: str, token: str) -> float:
    async with contextlib.AsyncExitStack() as stack, asyncio.timeout(30):
        streams = [await stack.enter_async_context(_listening(address, token)) for _ in range(5)]
        for told in streams:
            await anext(told)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        for told in streams:
            async for _ in told:
                pass
        assert await asyncio.to_thread(process.wait, 30) == 0
        return time.monotonic() - began
