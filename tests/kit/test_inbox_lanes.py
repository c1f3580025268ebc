"""The inbox's fairness and tenants on every engine: whose a message is, and whose turn it is."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime

from holdfast.kit.inbox import Inbox, InboxItem, InboxLimits, InboxQueue, InboxWorker, Source, Verified
from holdfast.model import Document, document
from holdfast.store import Store, Transaction, create

TENANT_OF_ACCOUNT = {"acct-1": "acme", "acct-2": "globex"}


@document("installations/{id}")
class Installation(Document):
    id: str
    tenant_id: str


DOCUMENTS: list[type[Document]] = [InboxItem, InboxQueue, Installation]


class ByAccount:
    """Takes any message; its account is in a header."""

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Verified:
        return Verified(headers["x-name"], account=headers.get("x-account", ""))


async def test_a_message_belongs_to_the_tenant_of_its_account(kit_store: Store) -> None:
    await kit_store.commit(
        *(create(Installation(id=account, tenant_id=tenant)) for account, tenant in TENANT_OF_ACCOUNT.items())
    )

    async def tenant_of(account: str) -> str | None:
        found = await kit_store.get(Installation, account)
        return found.doc.tenant_id if found else None

    source = Source(name="github", verifier=ByAccount(), tenant_of=tenant_of)
    inbox = Inbox(kit_store)
    for name, account in [("m1", "acct-1"), ("m2", "acct-2"), ("m3", "unknown"), ("m4", "")]:
        await inbox.receive(source, {"x-name": name, "x-account": account}, b"{}")
    owners = {
        tenant: {item.message_id for item in (await inbox.page("pending", tenant_id=tenant))[0]}
        for tenant in ("acme", "globex", "-")
    }
    assert owners == {"acme": {"m1"}, "globex": {"m2"}, "-": {"m3", "m4"}}
    await kit_store.commit(create(Installation(id="unknown", tenant_id="late")))
    again = await inbox.receive(source, {"x-name": "m3", "x-account": "unknown"}, b"{}")
    assert again.duplicate, "a message is stored once, whoever its account belongs to by now"


def _items(source: str, count: int, store: Store, *, tenant_id: str = "acme") -> list[InboxItem]:
    now = store.clock.now()
    return [
        InboxItem.received(
            tenant_id=tenant_id, source=source, message_id=f"{tenant_id}-{n}", received_at=now, due_at=now
        )
        for n in range(count)
    ]


async def _store_items(store: Store, items: list[InboxItem]) -> None:
    for first in range(0, len(items), 100):
        await store.privileged().commit(*map(create, items[first : first + 100]))


async def test_the_first_message_of_a_source_or_tenant_is_claimed_at_once_beside_any_backlog(
    kit_store: Store,
) -> None:
    claimed: list[str] = []

    async def note(item: InboxItem, tx: Transaction) -> None:
        claimed.append(item.lane)

    await _store_items(kit_store, _items("busy", 150, kit_store))
    worker = InboxWorker(kit_store, {"busy": note, "quiet": note}, limits=InboxLimits(concurrency=16))
    assert await worker.turn() == 8, "a lone lane gets half of the places"
    await _store_items(kit_store, _items("quiet", 1, kit_store))
    await _store_items(kit_store, _items("busy", 1, kit_store, tenant_id="other"))
    before = len(claimed)
    await worker.turn()
    assert {"quiet:acme", "busy:other"} <= set(claimed[before:])


async def test_handlers_that_hang_leave_places_for_other_sources(live_store: Store) -> None:
    released, quiet_done, stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    hanging = 0

    async def hang(item: InboxItem, tx: Transaction) -> None:
        nonlocal hanging
        hanging += 1
        await released.wait()

    async def note(item: InboxItem, tx: Transaction) -> None:
        quiet_done.set()

    await _store_items(live_store, _items("hangs", 40, live_store))
    worker = InboxWorker(live_store, {"hangs": hang, "quiet": note}, limits=InboxLimits(concurrency=8))
    running = asyncio.create_task(worker.run(stop))
    async with asyncio.timeout(30):
        while hanging < 4:  # noqa: ASYNC110 - a handler that begins tells nobody
            await asyncio.sleep(0.001)
        await _store_items(live_store, _items("quiet", 1, live_store))
        await quiet_done.wait()
        assert hanging < 8, "the last places are not for a source that fills the others"
        released.set()
        while hanging < 40:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        stop.set()
        await running
