"""A store that is written to while it is copied: what is in it, and the process that writes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from holdfast.app import open_store
from holdfast.model import Claim, Document, Index, Lifecycle, document
from holdfast.store import Increment, Store, create, delete, patch
from tests.faults.controlled_process import Hear, Order, Role

TENANTS: Final = ("acme", "hoge")


@document(
    "bills/{id}",
    tenant="tenant_id",
    indexes=[Index("status")],
    lifecycle=Lifecycle("status", initial=["open"], moves={"open": ["open", "paid"]}),
)
class Bill(Document, rename="camel"):
    """Opened, counted up, paid, thrown away."""

    id: str
    tenant_id: str
    status: Literal["open", "paid"] = "open"
    count: int = 0
    text: str = ""


@document("parcels/{id}", claim=Claim(due="due", owner="owner"))
class Parcel(Document, rename="camel"):
    """Claimed and settled again and again."""

    id: str
    due: datetime | None
    fence: int = 0
    owner: str | None = None
    trips: int = 0


DOCUMENTS: Final[list[type[Document]]] = [Bill, Parcel]
PARCELS: Final = 5
_PAST: Final = datetime(2026, 1, 1, tzinfo=UTC)


class Writer:
    """Writes at random and knows by itself what must have come of it."""

    def __init__(self, store: Store, count: int) -> None:
        self._store = store
        self.open = dict.fromkeys((f"b{number:06}" for number in range(count)), 0)
        self.paid: dict[str, int] = {}
        self.trips = 0
        self._next = count

    async def act(self) -> None:
        what = random.choice((self._add, self._count, self._count, self._pay, self._remove, self._travel))
        await what()

    async def _add(self) -> None:
        id = f"b{self._next:06}"
        self._next += 1
        await self._store.commit(create(Bill(id=id, tenant_id=random.choice(TENANTS))))
        self.open[id] = 0

    async def _count(self) -> None:
        id = random.choice(list(self.open))
        await self._store.commit(patch(Bill, id, changes={"count": Increment(1)}))
        self.open[id] += 1

    async def _pay(self) -> None:
        id = random.choice(list(self.open))
        await self._store.commit(patch(Bill, id, changes={"status": "paid"}))
        self.paid[id] = self.open.pop(id)

    async def _remove(self) -> None:
        id = random.choice(list(self.open))
        await self._store.commit(delete(Bill, id))
        del self.open[id]

    async def _travel(self) -> None:
        for taken in await self._store.claim_due(Parcel, limit=1, lease_s=600, owner="writer"):
            changes = {"trips": Increment(1), "due": _PAST + timedelta(seconds=self.trips)}
            await self._store.commit(patch(Parcel, taken.doc.id, changes=changes, expect=taken.fenced))
            self.trips += 1


async def write(order: Order, say: Callable[[str], None], hear: Hear) -> None:
    """Write until told to stop; then say what must be there."""
    store = (await open_store(order["url"], DOCUMENTS)).privileged()
    writer, stop = Writer(store, order["count"]), asyncio.ensure_future(hear())
    await writer.act()
    say("writing")
    while not stop.done():
        await writer.act()
        await asyncio.sleep(order["pause_s"])
    say(json.dumps({"open": writer.open, "paid": writer.paid, "trips": writer.trips}))
    await store.close()


async def fill(store: Store, count: int) -> None:
    bills = [Bill(id=f"b{n:06}", tenant_id=TENANTS[n % 2], text="x" * 200) for n in range(count)]
    for at in range(0, count, 250):
        await store.privileged().commit(*map(create, bills[at : at + 250]))
    await store.commit(*(create(Parcel(id=f"p{n}", due=_PAST)) for n in range(PARCELS)))


ROLES: dict[str, Role] = {"write": write}
