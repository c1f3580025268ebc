"""Webhooks past what can be stored or handled are sent away early, and told when to come again."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.config import RequestLimits
from holdfast.errors import RetryLaterError
from holdfast.http import backpressure
from holdfast.http.backpressure import REFUSAL_WAIT_S_MAX, REFUSALS_PER_S, Backpressure
from holdfast.http.ingest import Ingest
from holdfast.kit.inbox import Inbox, InboxItem, InboxLimits, InboxQueue, InboxWorker, Source
from holdfast.providers.github import GithubVerifier
from holdfast.service import Webhook
from holdfast.store import Transaction, create
from holdfast.store.io_counters import IO_COUNTERS
from holdfast.testing import ManualClock
from tests.http.server_harness import SECRET, serving
from tests.kit.eventually import until, until_found

SIGNATURE = "sha256=" + hmac.new(SECRET.encode(), b"{}", hashlib.sha256).hexdigest()
SOURCE = Source(name="bench", verifier=GithubVerifier(SECRET))


async def test_past_the_backlog_webhooks_are_sent_away_until_it_is_handled(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"backlog_max": 3}) as harness:

        async def send(name: str) -> tuple[int, str]:
            headers = {"x-word": SECRET, "x-name": name}
            status, _, told = await harness.ask("POST", "/echo-chamber/webhook", headers=headers, data=name)
            return status, told.get("retry-after", "")

        accepted, number = 0, 0

        async def refused() -> bool:
            nonlocal accepted, number
            number += 1
            status, after = await send(f"m{number}")
            accepted += status == 202
            return (status, after) == (503, "10")

        await until_found(refused)
        assert accepted >= 3
        assert (await harness.ask("GET", "/health"))[0] == 200
        # What was accepted is there, what was refused is not.
        assert await harness.runtime.store.privileged().count_due(InboxItem) == accepted
        await harness.runtime.drain(30)

        async def taken() -> bool:
            return (await send("after"))[0] in (200, 202)

        await until_found(taken)


async def test_of_too_many_at_once_some_wait_and_the_rest_are_sent_away(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, [InboxItem])
    await store.migrate()
    limits = RequestLimits(webhook_concurrency=2, webhook_waiting_max=3)
    gate, go_on = Backpressure(store, limits), asyncio.Event()
    at_once = most = 0

    async def message() -> None:
        nonlocal at_once, most
        async with gate:
            at_once += 1
            most = max(most, at_once)
            await go_on.wait()
            at_once -= 1

    taken = [asyncio.create_task(message()) for _ in range(5)]
    await asyncio.sleep(0)
    with pytest.raises(RetryLaterError) as refused:
        await message()
    assert refused.value.after_s == 1.0
    go_on.set()
    await asyncio.gather(*taken)
    assert most == 2
    await message()
    await store.close()


async def test_a_refused_message_is_not_read_and_costs_the_store_nothing(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, [InboxItem])
    gate = Backpressure(store, RequestLimits(webhook_concurrency=1, webhook_waiting_max=1))
    hook = Webhook(path="/webhook", source=SOURCE)
    ingest = Ingest(
        hook, Inbox(store), path=hook.path, time_limit_s=30, large=asyncio.Semaphore(1), backpressure=gate
    )  # fmt: skip
    sent: list[Any] = []

    async def receive() -> Any:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    async with gate:
        waiting = asyncio.create_task(gate.__aenter__())
        await asyncio.sleep(0)
        before = (IO_COUNTERS.reads, IO_COUNTERS.writes)
        status = await ingest({"method": "POST", "path": "/webhook", "headers": []}, receive, send)
        assert (IO_COUNTERS.reads, IO_COUNTERS.writes) == before
    assert status == 503
    assert (b"retry-after", b"1") in sent[0]["headers"]
    await waiting
    await gate.__aexit__()
    await store.close()


async def test_while_messages_wait_to_be_handled_few_are_stored_at_once(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backpressure, "BEHIND", 3)
    store = await open_store(sqlite_url, [InboxItem])
    await store.migrate()
    now = store.clock.now()
    await store.privileged().commit(*(
        create(InboxItem.received(
            tenant_id="-", source="s", message_id=str(n), received_at=now, due_at=now, body=b""
        ))
        for n in range(3)
    ))  # fmt: skip
    limits, go_on, at_work = RequestLimits(webhook_concurrency=20), asyncio.Event(), 0
    gate = Backpressure(store, limits)

    async def message() -> None:
        nonlocal at_work
        async with gate:
            at_work += 1
            await go_on.wait()
            at_work -= 1

    go_on.set()
    await message()

    async def counted() -> bool:
        return gate._backlog == 3

    await until_found(counted)
    go_on.clear()
    sent = [asyncio.create_task(message()) for _ in range(20)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert at_work == backpressure.CONCURRENCY_BEHIND
    go_on.set()
    await asyncio.gather(*sent)
    await store.close()


async def test_a_message_waits_for_a_place_for_a_bounded_time(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backpressure, "WAIT_S_MAX", 0.01)
    store = await open_store(sqlite_url, [InboxItem])
    await store.migrate()
    gate = Backpressure(store, RequestLimits(webhook_concurrency=1))
    async with gate:
        with pytest.raises(RetryLaterError):
            async with gate:
                pass
    async with gate:
        pass
    await store.close()


async def test_refusals_are_answered_at_a_bounded_rate(sqlite_url: str, clock: ManualClock) -> None:
    store = await open_store(sqlite_url, [InboxItem], clock=clock)
    gate, waits = Backpressure(store, RequestLimits()), list[float]()

    async def wait(seconds: float) -> None:
        waits.append(round(seconds * REFUSALS_PER_S, 3))

    for _ in range(4):
        await gate.pace_refusal(wait)
    await clock.advance(1)
    await gate.pace_refusal(wait)
    assert waits == [1, 2, 3], "the first at once, the next in turn, and at once again after a while"
    for _ in range(10_000):
        await gate.pace_refusal(wait)
    assert max(waits) == REFUSAL_WAIT_S_MAX * REFUSALS_PER_S
    await store.close()


class _GatedInbox:
    """A gate before the inbox, and its worker, which handles messages once it may go on."""

    def __init__(self, inbox: Inbox, worker: InboxWorker, gate: Backpressure) -> None:
        self.inbox, self.worker, self.gate = inbox, worker, gate
        self.at_work = self.most_at_work = self.stored = 0

    async def send(self, number: int) -> None:
        headers = {
            "x-github-delivery": str(number),
            "x-hub-signature-256": SIGNATURE,
            "x-github-event": "push",
        }
        async with self.gate:
            self.at_work += 1
            self.most_at_work = max(self.most_at_work, self.at_work)
            await self.inbox.receive(SOURCE, headers, b"{}")
            self.at_work -= 1
            self.stored += 1


@asynccontextmanager
async def _gated_inbox(url: str, go_on: asyncio.Event, *, handed: int) -> AsyncIterator[_GatedInbox]:
    async def handle(item: InboxItem, tx: Transaction) -> None:
        await go_on.wait()

    store, stop = await open_store(url, [InboxItem, InboxQueue]), asyncio.Event()
    await store.migrate()
    worker = InboxWorker(store, {"bench": handle}, limits=InboxLimits(handed_concurrency=handed))
    working = asyncio.create_task(worker.run(stop))
    await until(lambda: worker.room == handed)
    yield _GatedInbox(
        Inbox(store, local_worker=worker), worker, Backpressure(store, RequestLimits(), worker=worker)
    )
    go_on.set()
    stop.set()
    await working
    await store.close()


async def test_no_more_are_stored_at_once_than_the_worker_of_the_process_has_room_for(
    sqlite_url: str,
) -> None:
    go_on = asyncio.Event()
    async with _gated_inbox(sqlite_url, go_on, handed=6) as gated:
        await asyncio.gather(*(gated.send(number) for number in range(20)))
        assert gated.most_at_work == 6
        assert gated.stored == 20, "without room a few at once are stored nevertheless"


async def test_a_webhook_that_waits_is_stored_when_the_worker_has_room_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backpressure, "CONCURRENCY_BEHIND", 0)
    go_on = asyncio.Event()
    async with _gated_inbox(sqlite_url, go_on, handed=2) as gated:
        sent = [asyncio.create_task(gated.send(number)) for number in range(3)]
        await until(lambda: gated.stored == 2)
        assert (gated.worker.room, sent[2].done()) == (0, False)
        go_on.set()
        await asyncio.gather(*sent)
