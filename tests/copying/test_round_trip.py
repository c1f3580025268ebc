"""A store goes from engine to engine and comes back the same, with everything the kit keeps."""

from __future__ import annotations

import itertools

import pytest

from holdfast.errors import LeaseLostError
from holdfast.kit.outbox import Delivery, Endpoint, Event, Outbox
from holdfast.model import Document
from holdfast.runtime import KIT_DOCUMENTS
from holdfast.store import Store, create, patch
from holdfast.store.commit import Fence
from holdfast.store.contract.models import ALL
from holdfast.store_copy import Copy, CopyResult, copy_store, verify_stores
from holdfast.testing import ManualClock
from tests.copying.conftest import Open
from tests.copying.samples import fill
from tests.copying.store_contents import contents

CLASSES: list[type[Document]] = [cls for cls in (*KIT_DOCUMENTS, *ALL) if cls is not Copy]
EACH = 12


async def _claim(store: Store, clock: ManualClock) -> Delivery:
    """A delivery on its way: a worker holds it, under a fencing number."""
    acme = store.tenant("acme")
    endpoint = Endpoint(id="books", tenant_id="acme", url="https://books.example/", created_at=clock.now())
    event = Event(type="invoice.paid", body=b"{}")
    await acme.commit(create(endpoint), *Outbox(acme).writes(event, [endpoint]))
    (taken,) = await acme.claim_due(
        Delivery, limit=9, lease_s=60, owner="worker-1", per_lane=1, only_lanes=["books"]
    )
    return taken.doc


def _proved(copied: CopyResult) -> dict[str, tuple[int, str]]:
    assert (copied.state, copied.in_step) == ("finished", True)
    assert all((one.documents, one.hash) == (one.target_documents, one.target_hash) for one in copied.proof)
    return {one.collection: (one.documents, one.hash) for one in copied.proof}


async def test_a_store_comes_back_the_same_after_a_round_over_all_engines(
    sqlite_url: str, postgres_url: str, firestore_url: str, opened: Open, clock: ManualClock
) -> None:
    stores = [
        await opened(url, CLASSES)
        for url in (sqlite_url, postgres_url, firestore_url, sqlite_url.replace(".db", "-back.db"))
    ]
    await fill(stores[0], CLASSES, EACH)
    delivery = await _claim(stores[0], clock)
    first = await contents(stores[0], CLASSES)
    assert all(len(documents) >= EACH for documents in first.values())
    proofs = []
    for source, target in itertools.pairwise(stores):
        proofs.append(_proved(await copy_store(source, target, CLASSES, name="here", final=True)))
        assert await contents(target, CLASSES) == first
        assert (await verify_stores(source, target, CLASSES)).differing == 0
        assert await target.privileged().next_due(Delivery) == await source.privileged().next_due(Delivery)
    assert proofs[0] == proofs[1] == proofs[2]
    await _settle(stores[-1], delivery, clock)


async def _settle(store: Store, delivery: Delivery, clock: ManualClock) -> None:
    """The worker goes on under its fence; nobody gets the delivery before its lease ends."""
    acme, changes = store.tenant("acme"), {"status": "delivered", "next_attempt_at": None}
    assert await acme.claim_due(Delivery, limit=9, lease_s=60, per_lane=1, only_lanes=["books"]) == []
    with pytest.raises(LeaseLostError):
        await acme.commit(patch(Delivery, delivery.id, changes=changes, expect=Fence(delivery.fence - 1)))
    await acme.commit(patch(Delivery, delivery.id, changes=changes, expect=Fence(delivery.fence)))
    found = await acme.get(Delivery, delivery.id)
    assert found is not None
    assert (found.doc.status, found.doc.owner, found.doc.fence) == ("delivered", "worker-1", 1)
    clock.tick(61)
    assert await acme.claim_due(Delivery, limit=9, lease_s=60, per_lane=1, only_lanes=["books"]) == []
