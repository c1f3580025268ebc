"""Leases: one holder at a time, and the store itself refuses whoever came before."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.errors import LeaseLostError, RetryLaterError
from holdfast.kit import NO_TENANT
from holdfast.kit.leases import LeaseDocument, LeaseFields, Leases
from holdfast.model import Claim, Document, document
from holdfast.store.commit import put
from holdfast.store.store import Store
from holdfast.testing import ManualClock
from tests.kit.eventually import until


@document("reports/{id}", tenant="tenant_id")
class Report(Document):
    id: str
    tenant_id: str = NO_TENANT
    text: str = ""


@document("run_locks/{lock_id}", tenant="tenant_id", claim=Claim(due="expires_at", owner="held_by"))
class RunLock(LeaseFields, rename="camel"):
    """Leases under a service's own collection name."""


DOCUMENTS = [LeaseDocument, RunLock, Report]


async def test_a_held_lease_is_refused_to_others_until_its_time_is_over(
    kit_store: Store, clock: ManualClock
) -> None:
    leases = Leases(kit_store)
    first = await leases.acquire("x", ttl_s=30, owner="a", purpose="report")
    assert first is not None
    assert await leases.acquire("x", ttl_s=30, owner="b") is None
    await clock.advance(29.9)
    assert await leases.acquire("x", ttl_s=30, owner="b") is None
    await clock.advance(0.1)
    second = await leases.acquire("x", ttl_s=30, owner="b")
    assert second is not None
    assert second.fence > first.fence


async def test_names_and_tenants_do_not_stand_in_each_others_way(kit_store: Store) -> None:
    acme, beta = Leases(kit_store.tenant("acme")), Leases(kit_store.tenant("beta"))
    assert await acme.acquire("x", owner="a") is not None
    assert await acme.acquire("y", owner="a") is not None
    assert await beta.acquire("x", owner="b") is not None
    stored = await beta.get("x")
    assert stored is not None
    assert (stored.tenant_id, stored.held_by) == ("beta", "b")
    assert await acme.acquire("x", owner="c") is None


async def test_renewal_moves_the_end_and_keeps_the_number(kit_store: Store, clock: ManualClock) -> None:
    leases = Leases(kit_store)
    lease = await leases.acquire("x", ttl_s=30, owner="a")
    assert lease is not None
    await clock.advance(20)
    await leases.renew(lease)
    await clock.advance(20)
    assert lease.remaining_s == pytest.approx(10)
    assert await leases.acquire("x", owner="b") is None
    stored = await leases.get("x")
    assert stored is not None
    assert (stored.fence, stored.held_by) == (lease.fence, "a")


async def test_the_late_write_of_an_old_holder_is_refused_whole(kit_store: Store, clock: ManualClock) -> None:
    leases, store = Leases(kit_store), kit_store.tenant(NO_TENANT)
    old = await leases.acquire("x", ttl_s=30, owner="a")
    await clock.advance(31)
    new = await leases.acquire("x", ttl_s=30, owner="b")
    assert old is not None
    assert new is not None
    await store.commit(put(Report(id="r", text="new")), new.guard())
    with pytest.raises(LeaseLostError):
        await store.commit(put(Report(id="r", text="old")), old.guard())
    with pytest.raises(LeaseLostError):
        await leases.renew(old)
    assert await leases.release(old) is False
    found = await store.get(Report, "r")
    assert found is not None
    assert found.doc.text == "new"
    assert await leases.acquire("x", owner="c") is None


async def test_a_lease_that_ran_out_but_was_not_taken_still_writes_and_renews(
    kit_store: Store, clock: ManualClock
) -> None:
    leases, store = Leases(kit_store), kit_store.tenant(NO_TENANT)
    lease = await leases.acquire("x", ttl_s=30, owner="a")
    assert lease is not None
    await clock.advance(45)
    with pytest.raises(LeaseLostError):
        lease.raise_if_lost()
    await store.commit(put(Report(id="r")), lease.guard())
    await leases.renew(lease)
    lease.raise_if_lost()


async def test_a_released_lease_is_free_at_once_and_its_own_guard_is_refused(kit_store: Store) -> None:
    leases, store = Leases(kit_store), kit_store.tenant(NO_TENANT)
    lease = await leases.acquire("x", ttl_s=3600, owner="a")
    assert lease is not None
    assert await leases.release(lease) is True
    with pytest.raises(LeaseLostError):
        await store.commit(put(Report(id="r")), lease.guard())
    again = await leases.acquire("x", ttl_s=30, owner="b")
    assert again is not None
    assert again.fence > lease.fence


async def test_a_release_can_be_part_of_the_last_commit(kit_store: Store) -> None:
    leases, store = Leases(kit_store), kit_store.tenant(NO_TENANT)
    lease = await leases.acquire("x", ttl_s=3600, owner="a")
    assert lease is not None
    await store.commit(put(Report(id="r", text="done")), *leases.writes_release(lease))
    assert await leases.acquire("x", owner="b") is not None


async def test_a_number_is_never_used_again_after_the_document_was_removed(
    kit_store: Store, clock: ManualClock
) -> None:
    leases, store = Leases(kit_store), kit_store.tenant(NO_TENANT)
    old = await leases.acquire("x", ttl_s=30, owner="a")
    await clock.advance(8 * 86_400)
    assert await kit_store.privileged().expire(LeaseDocument) == 1
    new = await leases.acquire("x", ttl_s=30, owner="b")
    assert old is not None
    assert new is not None
    with pytest.raises(LeaseLostError):
        await store.commit(put(Report(id="r")), old.guard())


async def test_a_clock_set_forward_takes_no_lease_before_its_time(
    kit_store: Store, clock: ManualClock
) -> None:
    holder, other = Leases(kit_store), Leases(kit_store)
    lease = await holder.acquire("x", ttl_s=30, owner="a")
    assert lease is not None
    clock.set(clock.now() + timedelta(days=1))
    assert await other.acquire("x", owner="b") is None
    assert lease.remaining_s == pytest.approx(30)


async def test_a_clock_set_back_leaves_no_dead_holders_lease_standing(
    kit_store: Store, clock: ManualClock
) -> None:
    leases = Leases(kit_store)
    await leases.acquire("x", ttl_s=30, owner="dead")
    clock.set(clock.now() - timedelta(days=1))
    assert await leases.acquire("x", owner="b") is None
    await clock.advance(30)
    assert await leases.acquire("x", owner="b") is not None


async def test_who_waits_gets_the_lease_when_it_is_released(live_store: Store) -> None:
    leases = Leases(live_store)
    lease = await leases.acquire("x", ttl_s=60, owner="a")
    assert lease is not None
    waiting = asyncio.create_task(leases.acquire("x", owner="b", wait_s=30))
    await asyncio.sleep(0)
    await leases.release(lease)
    got = await asyncio.wait_for(waiting, 60)
    assert got is not None
    assert got.owner == "b"


async def test_who_waits_in_vain_gets_nothing(live_store: Store) -> None:
    leases = Leases(live_store)
    await leases.acquire("x", ttl_s=60, owner="a")
    assert await leases.acquire("x", owner="b", wait_s=0.05) is None


async def test_many_at_once_are_one_holder(live_store: Store) -> None:
    leases = Leases(live_store)
    got = await asyncio.gather(*(leases.acquire("x", owner=f"w{n}") for n in range(20)))
    assert sum(lease is not None for lease in got) == 1


async def test_a_block_is_renewed_while_it_runs_and_released_after(
    kit_store: Store, clock: ManualClock
) -> None:
    leases = Leases(kit_store)
    async with leases.hold("x", ttl_s=30, owner="a") as lease:
        for _ in range(10):
            await until(lambda: clock.sleepers == 1)
            await clock.advance(10)
            await until(lambda: lease.remaining_s > 29)
        assert lease.remaining_s > 15
    assert await leases.acquire("x", owner="b") is not None
    assert clock.sleepers == 0


async def test_a_block_whose_lease_was_taken_is_cancelled_and_says_so(live_store: Store) -> None:
    leases = Leases(live_store)
    reached = asyncio.Event()

    async def hold() -> None:
        async with leases.hold("x", ttl_s=0.3, owner="a") as lease:
            await live_store.tenant(NO_TENANT).commit(*leases.writes_release(lease))
            reached.set()
            await asyncio.Event().wait()

    with pytest.raises(LeaseLostError):
        await hold()
    assert reached.is_set()
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_anybody_elses_cancellation_goes_through_and_releases(live_store: Store) -> None:
    leases = Leases(live_store)
    inside = asyncio.Event()

    async def hold() -> None:
        async with leases.hold("x", ttl_s=60, owner="a"):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await leases.acquire("x", owner="b") is not None


async def test_a_block_does_not_start_while_another_holds_the_lease(live_store: Store) -> None:
    leases = Leases(live_store)
    await leases.acquire("x", ttl_s=60, owner="a")
    with pytest.raises(RetryLaterError):
        async with leases.hold("x", owner="b"):
            pytest.fail("two holders")


async def test_leases_live_under_a_services_own_collection(kit_store: Store) -> None:
    leases, kits = Leases(kit_store, kind=RunLock), Leases(kit_store)
    assert await leases.acquire("x", owner="a") is not None
    assert await kits.acquire("x", owner="b") is not None
    found = await kit_store.tenant(NO_TENANT).get(RunLock, "x")
    assert found is not None
    assert found.doc.held_by == "a"
