"""An inbox at work while the link to its store breaks and comes back."""

from __future__ import annotations

import asyncio
import contextlib

from holdfast.app import open_store
from holdfast.kit.inbox import InboxItem, InboxQueue, InboxWorker
from holdfast.model import Document
from holdfast.store import Transaction, create
from holdfast.worker import Supervisor
from tests.faults.severing_proxy import severing_proxy
from tests.kit.eventually import until

DOCUMENTS: list[type[Document]] = [InboxItem, InboxQueue]


async def test_a_slow_message_keeps_no_other_from_being_worked_on_after_an_outage(postgres_url: str) -> None:
    began, go, quick = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slowly(item: InboxItem, tx: Transaction) -> None:
        began.set()
        await go.wait()

    async def quickly(item: InboxItem, tx: Transaction) -> None:
        quick.set()

    here = await open_store(postgres_url, DOCUMENTS)
    await here.migrate()

    async def arrives(source: str) -> None:
        now = here.clock.now()
        item = InboxItem.received(tenant_id="-", source=source, message_id="1", received_at=now, due_at=now)
        await here.privileged().commit(create(item))

    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(here.close)
        proxy, url = await stack.enter_async_context(severing_proxy(postgres_url))
        store = await open_store(f"{url}?retry_s=0.2", DOCUMENTS)
        worker = InboxWorker(store, {"slow": slowly, "quick": quickly})
        supervisor, stop = Supervisor({"inbox": worker}, clock=store.clock), asyncio.Event()
        working = asyncio.create_task(supervisor.run(stop))
        try:
            await arrives("slow")
            await asyncio.wait_for(began.wait(), 60)
            proxy.cut()
            await arrives("quick")
            for _ in range(2):
                turned_at = worker.last_turn_at
                await until(lambda at=turned_at: worker.last_turn_at != at)  # type: ignore[misc]
            proxy.mend()
            await asyncio.wait_for(quick.wait(), 60)
            assert worker.under_way >= 1
        finally:
            proxy.mend()
            go.set()
            stop.set()
            await working
            await store.close()
