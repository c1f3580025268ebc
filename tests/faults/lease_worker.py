"""What a process does that holds leases while a test pauses and kills it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections.abc import Callable

from holdfast.errors import LeaseLostError
from holdfast.kit import NO_TENANT
from holdfast.kit.leases import Lease, LeaseDocument, Leases
from holdfast.model import Document, Index, document
from holdfast.store import Store, Write, create, put
from tests.faults.controlled_process import Hear, Order, Role
from tests.faults.store_opener import opener

Say = Callable[[str], None]


@document("ledgers/{name}")
class Ledger(Document):
    """How many entries a name has. Read and written back whole: only exclusion keeps it right."""

    name: str
    entries: int = 0


@document("entries/{name}/lines/{id}", indexes=[Index("number")])
class Line(Document):
    """One write of one holder."""

    name: str
    id: str
    number: int
    fence: int
    holder: str


ALL: list[type[Document]] = [LeaseDocument, Ledger, Line]


opened = opener(ALL)


async def writes_line(store: Store, lease: Lease, *, holder: str) -> list[Write]:
    """The next line of the ledger, as a holder who is alone would write it."""
    found = await store.get(Ledger, lease.name)
    number = 1 if found is None else found.doc.entries + 1
    line = Line(name=lease.name, id=f"{number:06}", number=number, fence=lease.fence, holder=holder)
    return [create(line), put(Ledger(name=lease.name, entries=number))]


async def turns(order: Order, say: Say, hear: Hear) -> None:
    """Takes a name, writes two lines one after the other, releases; so many times, several at once.

    Now and then it stops dead with a write ready, until somebody lets it go on.
    """
    refused = 0

    async def turn(leases: Leases, store: Store) -> bool:
        nonlocal refused
        name = random.choice(order["names"])
        lease = await leases.acquire(name, ttl_s=order["ttl_s"], owner=order["me"], wait_s=30)
        if lease is None:
            return False
        try:
            await store.commit(lease.guard(), *await writes_line(store, lease, holder=order["me"]))
            last = await writes_line(store, lease, holder=order["me"])
            if random.random() < order["stops"] / order["turns"]:
                os.kill(os.getpid(), signal.SIGSTOP)
            await store.commit(*leases.writes_release(lease), *last)
        except LeaseLostError:
            refused += 1
            return False
        return True

    async def several(leases: Leases, store: Store, count: int) -> None:
        while count > 0:
            count -= await turn(leases, store)

    async with opened(order["url"]) as root:
        store, leases = root.tenant(NO_TENANT), Leases(root)
        say("open")
        # A process that stops while others still open the file may hold its lock, and nobody would wake it.
        await hear()
        each = order["turns"] // order["tasks"]
        await asyncio.gather(*(several(leases, store, each) for _ in range(order["tasks"])))
    say(json.dumps({"done": each * order["tasks"], "refused": refused}))


async def late_writer(order: Order, say: Say, hear: Hear) -> None:
    """Takes a name, tells, and writes only when told to: by then it may be another's."""
    async with opened(order["url"]) as root:
        store, leases = root.tenant(NO_TENANT), Leases(root)
        try:
            async with leases.hold("x", ttl_s=order["ttl_s"], owner=order["me"], wait_s=30) as lease:
                writes = await writes_line(store, lease, holder=order["me"])
                say("held")
                await hear()
                # Shielded, so that the store is asked although the block is cancelled.
                wrote = await asyncio.shield(asyncio.ensure_future(_attempt(store, lease, writes)))
                say(wrote)
        except LeaseLostError:
            say("lost")


async def _attempt(store: Store, lease: Lease, writes: list[Write]) -> str:
    try:
        await store.commit(lease.guard(), *writes)
    except LeaseLostError:
        return "refused"
    return "written"


ROLES: dict[str, Role] = {"turns": turns, "late_writer": late_writer}
