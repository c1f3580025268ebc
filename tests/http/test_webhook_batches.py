"""Webhooks that came in one turn of the loop share a request to the store, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from uvicorn.server import ServerState

from holdfast.errors import StoreUnavailableError
from holdfast.http.ingest import Ingest, WebhookResponse
from holdfast.http.webhook_batch import WebhookBatch
from holdfast.http.webhook_cycle import WebhookCycle
from holdfast.kit.inbox import InboxItem
from holdfast.store import Query
from holdfast.store.commit import Commit, Outcome
from holdfast.store.commit_batch import CreateBatch
from tests.http.server_harness import SECRET, ServerHarness, serving
from tests.kit.eventually import until

PATH = "/echo-chamber/webhook"


class Answered:
    """A connection that waits for its one answer."""

    def __init__(self, *, broken: bool = False) -> None:
        self._broken = broken
        self.cycle: Any = None
        self.unread: bytes | None = None
        self.answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def read_as_usual(self) -> None:
        raise NotImplementedError

    def write(self, cycle: WebhookCycle, response: bytes, now_s: float) -> None:
        if self._broken:
            raise OSError("broken")
        self.answer.set_result(int(response.split(b" ")[1]))

    def respond_by_task(self, cycle: WebhookCycle, responding: Coroutine[Any, Any, WebhookResponse]) -> None:
        task = asyncio.get_running_loop().create_task(responding)
        task.add_done_callback(lambda done: self.answer.set_result(done.result().status))

    def hang_up(self) -> None:
        self.answer.set_result(0)


def sent(
    batch: WebhookBatch,
    ingest: Ingest,
    name: str,
    *,
    word: str = SECRET,
    text: str = "",
    broken: bool = False,
) -> Answered:
    fields = {"x-word": word, "x-name": name, "x-text": text}
    cycle, connection = WebhookCycle(ingest, [], fields, keep_alive=True), Answered(broken=broken)
    cycle.body = b"hello"
    batch.add(connection, cycle)
    return connection


async def answers(connections: Sequence[Answered]) -> list[int]:
    async with asyncio.timeout(30):
        return [await one.answer for one in connections]


def opened(harness: ServerHarness) -> tuple[Ingest, WebhookBatch]:
    ingest = harness.surface.webhooks[PATH]
    answered = harness.surface.metrics.answered
    return ingest, WebhookBatch(ingest, ServerState(), loop=asyncio.get_running_loop(), answered=answered)


async def stored(harness: ServerHarness) -> int:
    return await harness.runtime.store.privileged().count(
        Query(InboxItem).where("status", "==", "pending").order_by("-received_at")
    )


async def test_messages_of_one_turn_are_one_request_and_are_answered_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as harness:
        ingest, batch = opened(harness)
        commit, sizes, kinds = harness.runtime.store.engine.commit, list[int](), list[Any]()

        def counted(commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
            sizes.append(len(commits))
            kinds.append(type(commits))
            return commit(commits)

        monkeypatch.setattr(harness.runtime.store.engine, "commit", counted)
        names = ["a", "b", "c", "b", "d"]
        assert await answers([sent(batch, ingest, name=name) for name in names]) == [202, 202, 202, 200, 202]
        # Without a commit for each: engines insert from the documents.
        assert (sizes, kinds) == ([5], [CreateBatch])
        assert await answers([sent(batch, ingest, name=name) for name in ("a", "e")]) == [200, 202]
        assert await stored(harness) == 5
        assert ingest._backpressure._at_work == 0
        assert not batch.tasks


async def test_a_message_that_is_refused_leaves_the_others_of_its_batch_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as harness:
        ingest, batch = opened(harness)
        connections = [
            sent(batch, ingest, name="a"), sent(batch, ingest, name="b", text="\ud800"),
            sent(batch, ingest, name="c", word="wrong"),
            sent(batch, ingest, name="d", broken=True), sent(batch, ingest, name="e"),
        ]  # fmt: skip
        loop, faults = asyncio.get_running_loop(), list[Any]()
        loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
        first, invalid, wrong, unanswered, last = await answers(connections)
        loop.set_exception_handler(None)
        assert (first, last, unanswered) == (202, 202, 0)
        assert 400 <= invalid < 500
        assert wrong == 401
        assert [str(one) for one in faults] == ["broken"]
        assert await stored(harness) == 3
        assert ingest._backpressure._at_work == 0


async def test_a_fault_before_any_message_is_verified_is_told_to_all_and_keeps_no_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as harness:
        ingest, batch = opened(harness)

        def broken() -> Any:
            raise ZeroDivisionError("a bug")

        with monkeypatch.context() as patched:
            patched.setattr(ingest._inbox._clock, "now", broken)
            assert await answers([sent(batch, ingest, name=name) for name in "abc"]) == [500] * 3
        assert ingest._backpressure._at_work == 0
        assert await answers([sent(batch, ingest, name="a")]) == [202]


async def test_past_the_places_messages_of_a_batch_wait_for_one(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"webhook_concurrency": 3}) as harness:
        ingest, batch = opened(harness)
        connections = [sent(batch, ingest, name=str(number)) for number in range(9)]
        await asyncio.sleep(0)
        assert ingest._backpressure._at_work == 3
        assert await answers(connections) == [202] * 9
        assert await stored(harness) == 9
        assert ingest._backpressure._at_work == 0


async def test_where_the_store_fails_each_message_of_a_batch_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as harness:
        ingest, batch = opened(harness)

        def failing(commits: Sequence[Commit]) -> Awaitable[list[Outcome]]:
            failed = asyncio.get_running_loop().create_future()
            failed.set_exception(StoreUnavailableError("the disk is full", after_s=30))
            return failed

        with monkeypatch.context() as patched:
            patched.setattr(harness.runtime.store.engine, "commit", failing)
            assert await answers([sent(batch, ingest, name=name) for name in "abc"]) == [503] * 3
        assert ingest._backpressure._at_work == 0
        assert await stored(harness) == 0


async def test_a_server_that_waits_no_longer_hangs_up_on_all_of_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(tmp_path) as harness:
        ingest, batch = opened(harness)
        with monkeypatch.context() as patched:
            never = asyncio.get_running_loop().create_future()
            patched.setattr(harness.runtime.store.engine, "commit", lambda commits: never)
            connections = [sent(batch, ingest, name=name) for name in "ab"]
            await until(lambda: bool(batch.tasks))
            (storing,) = batch.tasks
            storing.cancel()
            assert await answers(connections) == [0, 0]
        assert ingest._backpressure._at_work == 0
