"""What the companions of the tests do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable

from holdfast.app import open_store
from holdfast.model import Document, document
from holdfast.service import SubprocessTask
from holdfast.store import Query, Store, create
from holdfast.subprocess_worker import StoreSubprocessPool
from tests.faults.controlled_process import Hear, Order, Role


@document("beside_notes/{id}")
class Note(Document):
    id: str

    @classmethod
    async def keep(cls, url: str, *ids: str) -> None:
        store = await open_store(url, [cls])
        await store.migrate()
        await store.commit(*(create(cls(id=id)) for id in ids))
        await store.close()


async def _read(store: Store, given: bytes) -> AsyncIterator[bytes]:
    async for one in store.scan(Query(Note)):
        yield given + one.doc.id.encode()


async def _talk(store: Store, given: bytes) -> AsyncIterator[bytes]:
    for _ in range(3):
        print("talking", flush=True)
        yield given * 300_000


async def _fail(store: Store, given: bytes) -> AsyncIterator[bytes]:
    yield b"so far"
    raise ValueError("not today")


async def _split(store: Store, given: bytes) -> AsyncIterator[bytes]:
    yield b"so far"
    os._exit(3)


async def _wait(store: Store, given: bytes) -> AsyncIterator[bytes]:
    yield b"waiting"
    # The first message leaves as the second is asked for.
    yield b"still"
    await asyncio.Event().wait()


async def _go_on(store: Store, given: bytes) -> AsyncIterator[bytes]:
    while True:
        yield b"on" * 100_000


READ = SubprocessTask(documents=[Note], act=_read)
TALK = SubprocessTask(documents=[Note], act=_talk)
FAIL = SubprocessTask(documents=[Note], act=_fail)
SPLIT = SubprocessTask(documents=[Note], act=_split)
WAIT = SubprocessTask(documents=[Note], act=_wait)
GO_ON = SubprocessTask(documents=[Note], act=_go_on)


async def start(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Start a companion, take one message from it, then look at no other."""
    async with StoreSubprocessPool(order["url"])(f"{__name__}:GO_ON") as companion:
        await anext(companion.stream(b""))
        say(f"companion {companion.pid}")
        await asyncio.Event().wait()


ROLES: dict[str, Role] = {"start": start}
