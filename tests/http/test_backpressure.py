"""Webhooks past what can be stored or handled are sent away early, and told when to come again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holdfast.app import open_store
from holdfast.config import RequestLimits
from holdfast.errors import RetryLaterError
from holdfast.http.backpressure import Backpressure
from holdfast.kit.inbox import InboxItem
from tests.http.bed import SECRET, serving
from tests.kit.eventually import until_found


async def test_past_the_backlog_webhooks_are_sent_away_until_it_is_handled(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"backlog_max": 3}) as bed:

        async def send(name: str) -> tuple[int, str]:
            headers = {"x-word": SECRET, "x-name": name}
            status, _, told = await bed.ask("POST", "/echo-chamber/webhook", headers=headers, data=name)
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
        assert (await bed.ask("GET", "/health"))[0] == 200
        # What was accepted is there, what was refused is not.
        assert await bed.runtime.store.privileged().count_due(InboxItem) == accepted
        await bed.runtime.drain(30)

        async def taken() -> bool:
            return (await send("after"))[0] in (200, 202)

        await until_found(taken)


async def test_of_too_many_at_once_some_wait_and_the_rest_are_sent_away(sqlite_url: str) -> None:
    store = await open_store(sqlite_url, [InboxItem])
    await store.migrate()
    limits = RequestLimits(webhook_concurrency=2, webhook_waiting_max=3)
    backpressure, go_on = Backpressure(store, limits), asyncio.Event()
    at_once = most = 0

    async def message() -> None:
        nonlocal at_once, most
        async with backpressure:
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
