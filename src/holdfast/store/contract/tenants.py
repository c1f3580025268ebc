"""Two tenants with the same documents, and everything one could learn about the other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model import Document
from holdfast.store.commit import Snapshot, create
from holdfast.store.contract.models import Account, Card, GuestDocument, Letter, QueuedJob, Visit
from holdfast.store.query import Query
from holdfast.store.store import Store
from holdfast.testing import ManualClock

CLASSES: tuple[Any, ...] = (Account, Letter, Card, QueuedJob, Visit, GuestDocument)
MINE, OTHER = "mine", "other"


def make(cls: Any, tenant: str, id: str, clock: ManualClock) -> Any:
    """Return a document that can be found, claimed and expired."""
    past = clock.now() - timedelta(days=1)
    if cls is Account:
        return Account(id=id, tenant_id=tenant, name="same", balance=7, labels=["l"])
    if cls is Letter:
        return Letter(tenant_id=tenant, id=id, subject="same")
    if cls is Card:
        return Card(board_id="b", id=id, tenant_id=tenant, rank=7)
    if cls is QueuedJob:
        return QueuedJob(id=id, tenant_id=tenant, due=past, lane="l")
    if cls is Visit:
        return Visit(id=id, tenant_id=tenant, seen_at_ms=0, state="ended")
    return GuestDocument(room_id="b", id=id, tenant_id=tenant, leaves_at=past)


def ids_of(cls: Any, tenant: str, id: str) -> tuple[str, ...]:
    if cls is Letter:
        return (tenant, id)
    return ("b", id) if cls in (Card, GuestDocument) else (id,)


QUESTIONS: tuple[Query[Any], ...] = (
    Query(Account), Query(Account).where("name", "==", "same"), Query(Account).order_by("-balance"),
    Query(Account).where("name", "==", "same").order_by("balance"),
    Query(Account).where("labels", "array-contains", "l"), Query(Account).where("balance", "in", [7, 8]),
    Query(Account).where("name", "!=", "x"), Query(Account).where("tenant_id", "==", OTHER),
    Query(Account).where("tenant_id", "in", [MINE, OTHER]).order_by("name"), Query(Letter).under(OTHER),
    Query(Letter).under(MINE), Query(Letter).order_by("subject"), Query(Card).under("b"),
    Query(Letter).across_parents().order_by("subject"), Query(Card).under("b").order_by("rank"),
    Query(Card).across_parents().order_by("-rank"), Query(Card).across_parents().where("rank", ">", 0),
    Query(QueuedJob).where("status", "in", ["waiting", "working"]),
    Query(Visit).where("state", "==", "ended").order_by("seen_at_ms"),
    Query(GuestDocument).across_parents().order_by("leaves_at"), Query(GuestDocument).under("b"),
)  # fmt: skip


class TwoTenants:
    """Two tenants with the same documents, and the versions and cursors of the other."""

    def __init__(self, store: Store, clock: ManualClock) -> None:
        self.root, self.clock = store, clock
        self.me, self.other = store.tenant(MINE), store.tenant(OTHER)
        self.cursors: list[str] = []
        self.versions: list[int] = []

    async def fill(self) -> None:
        for tenant in (MINE, OTHER):
            for id in ("1", "2", "3"):
                made = (make(cls, tenant, f"{tenant}-{id}", self.clock) for cls in CLASSES)
                await self.root.tenant(tenant).commit(*(create(one) for one in made))
        for handle in (self.other, self.root.privileged()):
            await self._overhear(handle)
        self.before = await self.others()

    async def _overhear(self, handle: Store) -> None:
        for query in QUESTIONS:
            try:
                page = await handle.query(query.limit(1))
            except HoldfastError:
                continue
            self.cursors += [page.cursor] if page.cursor else []

    async def others(self) -> list[Snapshot[Document] | None]:
        """Return all documents of the other tenant with their versions."""
        found: list[Snapshot[Document] | None] = []
        for cls in CLASSES:
            found += await self.other.get_many(cls, [ids_of(cls, OTHER, f"{OTHER}-{n}") for n in "123"])
        self.versions = [s.version for s in found if s]
        return found


_WORLDS: dict[int, TwoTenants] = {}


async def tenants_of(store: Store, clock: ManualClock) -> TwoTenants:
    """Return one pair per test: hypothesis runs many examples on the same store."""
    pair = _WORLDS.get(id(store))
    if pair is None or pair.root is not store:
        pair = TwoTenants(store, clock)
        await pair.fill()
        _WORLDS.clear()
        _WORLDS[id(store)] = pair
    return pair
