"""Subscriptions are notified of commits, of this process and, where the engine can, of others."""

from __future__ import annotations

import asyncio
import sys
from typing import ClassVar

import pytest

from holdfast.store.commit import create, delete, patch
from holdfast.store.contract.harness import EngineHarness
from holdfast.store.contract.models import Chore, Leaf, Note
from holdfast.store.port import Capabilities
from holdfast.store.store import Store
from holdfast.testing import ManualClock

SOON_S = 5.0  # far more than a subscription takes; one that is never notified costs this much
QUIET_S = 0.2


class SubscriptionContract:
    capabilities: ClassVar[Capabilities]

    async def test_a_commit_wakes_the_subscription_of_its_collection(self, store: Store) -> None:
        subscription = store.watch(Note)
        waiting = asyncio.create_task(subscription.wait(SOON_S))
        await store.commit(create(Note(id="n")))
        assert await waiting
        subscription.close()

    async def test_each_kind_of_write_wakes(self, store: Store, clock: ManualClock) -> None:
        subscription = store.watch(Chore)
        for write in [create(Chore(id="c")), patch(Chore, "c", changes={"due": clock.now()})]:
            await store.commit(write)
            assert await subscription.wait(SOON_S)
        await store.commit(delete(Chore, "c"))
        assert await subscription.wait(SOON_S)
        subscription.close()

    async def test_a_commit_before_the_wait_is_not_missed(self, store: Store) -> None:
        subscription = store.watch(Note, Leaf)
        await store.commit(create(Leaf(tree="t", branch="b", id="l")))
        assert await subscription.wait(SOON_S)
        subscription.close()

    async def test_many_commits_between_two_waits_wake_at_least_once(self, store: Store) -> None:
        subscription = store.watch(Note)
        await asyncio.gather(*(store.commit(create(Note(id=f"{n}"))) for n in range(20)))
        assert await subscription.wait(SOON_S)
        subscription.close()

    async def test_two_watchers_are_both_woken(self, store: Store) -> None:
        subscriptions = [store.watch(Note), store.watch(Note)]
        await store.commit(create(Note(id="n")))
        assert [await subscription.wait(SOON_S) for subscription in subscriptions] == [True, True]
        for subscription in subscriptions:
            subscription.close()

    async def test_without_commits_the_wait_runs_out(self, store: Store) -> None:
        await store.commit(create(Note(id="n")))
        subscription = store.watch(Note)
        await store.get(Note, "n")
        # An engine may wake it once when it begins to listen, for what was committed before that.
        woken = [await subscription.wait(QUIET_S) for _ in range(3)]
        assert woken.count(True) <= 1
        if self.capabilities.embedded:
            assert woken[1:] == [False, False]
        subscription.close()

    async def test_another_store_on_the_same_place_is_woken(
        self, harness: EngineHarness, store: Store
    ) -> None:
        if not self.capabilities.wakes_processes:
            pytest.skip("the engine wakes its own process alone")
        async with harness.open(migrate=False) as other:
            subscription = other.watch(Note)
            await subscription.wait(QUIET_S)
            await store.commit(create(Note(id="n")))
            assert await subscription.wait(SOON_S)
            subscription.close()

    async def test_a_commit_of_another_store_right_after_the_subscription_is_not_missed(
        self, harness: EngineHarness, store: Store
    ) -> None:
        if not self.capabilities.wakes_processes:
            pytest.skip("the engine wakes its own process alone")
        await store.commit(create(Note(id="warm")))
        async with harness.open(migrate=False) as other:
            subscription = other.watch(Note)
            await store.commit(create(Note(id="n")))
            assert await subscription.wait(SOON_S)
            subscription.close()

    async def test_a_commit_of_another_process_wakes_where_stated(
        self, harness: EngineHarness, store: Store
    ) -> None:
        subscription = store.watch(Note)
        await subscription.wait(QUIET_S)
        committing = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "holdfast.store.contract.other_process", *harness.address, "from-outside"
        )
        woken = asyncio.create_task(subscription.wait(SOON_S * 4))
        assert await committing.wait() == 0
        if not self.capabilities.wakes_processes:
            assert not woken.done()
            woken.cancel()
            return
        assert await woken
        assert await store.get(Note, "from-outside") is not None
        subscription.close()
