"""Those who wait for something to claim are woken by commits that may have left it, and by no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.kit.outbox import OUTBOX_MODELS, Delivery
from holdfast.store import Fence, Store, create, delete, patch


@pytest.fixture(params=["sqlite", "postgres"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    made = await open_store(request.getfixturevalue(f"{request.param}_url"), OUTBOX_MODELS.all)
    await made.migrate()
    if request.param == "postgres":
        # Everybody is woken once when it begins to listen.
        subscription = made.watch(Delivery)
        assert await subscription.wait(5)
        subscription.close()
    yield made
    await made.close()


async def test_a_subscription_for_claims_hears_of_what_can_be_claimed(store: Store) -> None:
    tenant, now = store.tenant("-"), store.clock.now()
    every, claims = store.watch(Delivery), store.watch(Delivery, claims=True)

    def delivery(id: str, **fields: Any) -> Delivery:
        return Delivery(
            id=id, event_id=id, endpoint_id="ep", event_type="thing.made", body=b"{}", occurred_at=now,
            created_at=now, **fields,
        )  # fmt: skip

    held = delivery("held", status="sending", owner="me", fence=1, next_attempt_at=now)
    await tenant.commit(create(held))
    assert await every.wait(5)
    assert not await claims.wait(0.01)
    settled = {"status": "delivered", "next_attempt_at": None, "finished_at": now, "owner": None}
    await tenant.commit(patch(Delivery, "held", changes=settled, expect=Fence(1)))
    assert await every.wait(5)
    assert not await claims.wait(0.01)
    await tenant.commit(create(delivery("due", next_attempt_at=now)))
    assert await claims.wait(5)
    released = {"status": "pending", "next_attempt_at": now, "owner": None}
    await tenant.commit(create(delivery("again", status="sending", owner="me", fence=1, next_attempt_at=now)))
    assert not await claims.wait(0.01)
    await tenant.commit(patch(Delivery, "again", changes=released, expect=Fence(1)))
    assert await claims.wait(5)
    # A commit of both kinds, and one that does not touch what a claim reads.
    await tenant.commit(create(delivery("a", status="skipped")), create(delivery("b", next_attempt_at=now)))
    assert await claims.wait(5)
    await tenant.commit(patch(Delivery, "b", changes={"reason": "why not"}))
    assert await claims.wait(5)
    await tenant.commit(delete(Delivery, "b"))
    assert not await claims.wait(0.01)
    # Many at once.
    await tenant.settle(
        [create(delivery(f"held-{n}", status="sending", owner="me", fence=1, next_attempt_at=now))]
        for n in range(20)
    )
    assert not await claims.wait(0.01)
    await tenant.settle([patch(Delivery, f"held-{n}", changes=settled, expect=Fence(1))] for n in range(20))
    assert not await claims.wait(0.01)
    await tenant.settle([create(delivery(f"due-{n}", next_attempt_at=now))] for n in range(20))
    assert await claims.wait(5)
    every.close()
    claims.close()
