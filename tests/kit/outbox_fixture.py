"""Fixtures of the outbox's tests: a receiver with chosen answers, its endpoints, a running dispatcher."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from holdfast.kit.outbox import (
    OUTBOX_MODELS,
    Delivery,
    Dispatcher,
    Endpoint,
    Event,
    Outbox,
    Sign,
    WebhookSigner,
    delivery_id,
    new_secret,
)
from holdfast.net import AddressGuard, RawSender
from holdfast.store import Store, put
from tests.kit.receiver import OK, Received, Serving, serving

SECRET = new_secret()
FAIL = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy"

Answering = Callable[[Received], bytes | Awaitable[bytes]]


def answer(status: int, *headers: str, body: str = "") -> bytes:
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


@contextlib.asynccontextmanager
async def receiving(say: Answering = lambda received: OK) -> AsyncIterator[Serving]:
    """A receiver that answers each request by what `say` makes of it."""

    async def talk(state: Serving, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            said = say(await state.read(reader))
            writer.write(said if isinstance(said, bytes) else await said)
            await writer.drain()

    async with serving(talk) as state:
        yield state


class Slowly:
    """Answers each request after a while, and remembers how many it had at once."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._now = self.most = 0

    async def __call__(self, received: Received) -> bytes:
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(self._wait_s)
        self._now -= 1
        return OK


async def signing(endpoint: Endpoint) -> Sign:
    return WebhookSigner([SECRET]).headers


@contextlib.asynccontextmanager
async def dispatching(store: Store, **settings: Any) -> AsyncIterator[Dispatcher]:
    """A dispatcher at work until the block ends."""
    sender = RawSender(AddressGuard(allow=["127.0.0.1"]))
    chosen: dict[str, Any] = {"signing": signing, "drain_s": 5.0} | settings
    dispatcher = Dispatcher(store, sender, **chosen)
    stop = asyncio.Event()
    running = asyncio.create_task(dispatcher.run(stop))
    try:
        yield dispatcher
    finally:
        stop.set()
        await running
        await sender.close()


async def endpoint_at(store: Store, url: str, endpoint_id: str = "ep", **settings: Any) -> Endpoint:
    endpoint = Endpoint(id=endpoint_id, url=url, created_at=store.clock.now(), **settings)
    await store.tenant("-").commit(put(endpoint))
    return endpoint


async def send(store: Store, endpoint: Endpoint, *event_ids: str, body: bytes = b"{}") -> None:
    outbox = Outbox(store)
    for event_id in event_ids:
        await outbox.send(Event(id=event_id, type="thing.made", body=body), [endpoint])


async def delivery(store: Store, event_id: str, endpoint_id: str = "ep") -> Delivery:
    found = await store.tenant("-").get(Delivery, delivery_id(event_id, endpoint_id))
    assert found is not None
    return found.doc


async def state_is(store: Store, event_id: str, status: str, *, within_s: float = 30.0) -> Delivery:
    """Wait for a delivery to reach a state."""
    async with asyncio.timeout(within_s):
        while (found := await delivery(store, event_id)).status != status:  # noqa: ASYNC110 - told by nobody
            await asyncio.sleep(0.01)
    return found


DOCUMENTS = list(OUTBOX_MODELS.all)
