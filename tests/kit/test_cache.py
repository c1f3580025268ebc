"""The cache in two levels: one load for all who wait, times from the source, clears that nothing undoes."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import field as stored_as

from holdfast.app import open_store
from holdfast.kit import NO_TENANT
from holdfast.kit.cache import Cache, CacheDocument, CacheFields, CacheGeneration, Loaded
from holdfast.kit.leases import LeaseDocument
from holdfast.model import SERVICE_ONLY, Document, ProvidedId, document
from holdfast.store import Store
from holdfast.testing import ManualClock
from tests.kit.eventually import until

TTL_S, STALE_S, MEMORY_S, LEASE_S = 100.0, 40.0, 20.0, 10.0


@document("{env}-cache/{key}", id=ProvidedId(), tenant="tenant_id", access=SERVICE_ONLY)
class SpanCache(CacheFields):
    """A service's own collection, under names of its own."""

    key: str = stored_as(name="timespan")
    value: list[int] = stored_as(name="stories")
    cached_at_ms: int = stored_as(name="cachedAt")
    tenant_id: str = NO_TENANT


DOCUMENTS: list[type[Document]] = [CacheDocument, CacheGeneration, SpanCache, LeaseDocument]


@dataclass
class Source:
    """Counts its loads; while `held`, they wait."""

    version: int = 0
    loads: int = 0
    held: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)
    fault: Exception | None = None

    async def load(self, key: str) -> Loaded[Any]:
        self.loads += 1
        value = {"version": self.version, "load": self.loads, "patches": 0}
        if self.held:
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append(gate)
            await gate
        if self.fault is not None:
            raise self.fault
        return Loaded(value)

    def release(self) -> None:
        for gate in self.waiting:
            if not gate.done():
                gate.set_result(None)
        self.waiting.clear()


def cache_of(store: Store, source: Source, **words: Any) -> Cache[Any]:
    given: dict[str, Any] = {"stale_s": 0.0, "memory_s": MEMORY_S, "lease_s": LEASE_S} | words
    return Cache(store, "stories", source.load, ttl_s=lambda key: TTL_S, **given)


async def test_a_value_comes_from_its_source_then_memory_and_in_another_process_from_the_store(
    kit_store: Store,
) -> None:
    source = Source()
    first, second = cache_of(kit_store, source), cache_of(kit_store, source)
    assert [(await first.get("Day")).level for _ in range(2)] == ["source", "memory"]
    assert [(await second.get("Day")).level for _ in range(2)] == ["store", "memory"]
    assert source.loads == 1
    assert (first.stats.source, first.stats.memory, second.stats.store) == (1, 1, 1)


async def test_the_time_to_live_counts_from_the_source_on_both_levels(
    kit_store: Store, clock: ManualClock
) -> None:
    source = Source()
    first, second = cache_of(kit_store, source), cache_of(kit_store, source, memory_s=1_000)
    await first.get("Day")
    await clock.advance(TTL_S - 1)
    assert (await second.get("Day")).level == "store"
    await clock.advance(1)
    assert (await second.get("Day")).level == "source"


async def test_a_source_may_give_the_time_its_value_is_from(kit_store: Store, clock: ManualClock) -> None:
    began = clock.now()

    async def load(key: str) -> Loaded[int]:
        return Loaded(7, at=began)

    cache = Cache(kit_store, "old", load, ttl_s=lambda key: 10.0)
    await clock.advance(9)
    assert (await cache.get("x")).cached_at == began
    await clock.advance(1)
    assert (await cache.get("x")).level == "source"


async def test_many_readers_in_two_processes_wait_for_one_load(kit_store: Store) -> None:
    source = Source(held=True)
    caches = [cache_of(kit_store, source), cache_of(kit_store, source)]
    readers = [asyncio.create_task(caches[n % 2].get("Year")) for n in range(200)]
    await until(lambda: bool(source.waiting))
    source.release()
    async with asyncio.timeout(30):
        while not all(one.done() for one in readers):
            await asyncio.sleep(0.01)
            assert isinstance(kit_store.clock, ManualClock)
            await kit_store.clock.advance(0.1)
    assert {one.result().value["load"] for one in readers} == {1}
    assert source.loads == 1


async def test_a_stale_value_is_served_while_it_is_loaded_again(kit_store: Store, clock: ManualClock) -> None:
    source = Source()
    cache = cache_of(kit_store, source, stale_s=STALE_S)
    await cache.get("Day")
    source.version = 1
    await clock.advance(TTL_S)
    stale = await cache.get("Day")
    assert (stale.stale, stale.value["version"]) == (True, 0)
    await until(lambda: source.loads == 2)
    await until(lambda: not cache._refreshes)
    fresh = await cache.get("Day")
    assert (fresh.stale, fresh.value["version"], source.loads) == (False, 1, 2)
    await clock.advance(TTL_S + STALE_S)
    assert (await cache.get("Day")).level == "source"


async def test_a_load_that_began_before_a_clear_brings_nothing_back(kit_store: Store) -> None:
    source = Source(held=True)
    cache, other = cache_of(kit_store, source), cache_of(kit_store, source)
    old = asyncio.create_task(cache.get("Day"))
    await until(lambda: bool(source.waiting))
    source.version, source.held = 1, False
    await cache.clear("Day")
    source.release()
    assert (await old).value["version"] == 0
    assert (await cache.get("Day")).value["version"] == 1
    assert (await other.get("Day")).value["version"] == 1


async def test_what_another_process_cleared_or_changed_is_seen_within_the_memory_time(
    kit_store: Store, clock: ManualClock
) -> None:
    source = Source()
    first, second = cache_of(kit_store, source), cache_of(kit_store, source)
    await first.get("Day")
    await second.get("Day")
    assert await first.update("Day", lambda value: value | {"patches": 1})
    assert (await first.get("Day")).value["patches"] == 1
    await clock.advance(MEMORY_S)
    assert (await second.get("Day")).value["patches"] == 1
    await first.clear("Day")
    source.version = 1
    await clock.advance(MEMORY_S)
    assert (await second.get("Day")).value["version"] == 1
    # Remembered again, though a cleared value's changes were counted higher.
    assert (await second.get("Day")).level == "memory"


async def test_a_change_made_during_a_load_is_not_undone_by_it(kit_store: Store, clock: ManualClock) -> None:
    source = Source()
    cache, worker = cache_of(kit_store, source, stale_s=STALE_S), cache_of(kit_store, source)
    await cache.get("Day")
    await clock.advance(TTL_S)
    source.held = True
    assert (await cache.get("Day")).stale
    await until(lambda: bool(source.waiting))
    source.held, source.version = False, 1
    assert await worker.update("Day", lambda value: value | {"patches": 1})
    source.release()
    await until(lambda: not cache._refreshes)
    # Loaded once more, from a source that has the change.
    assert (await cache.get("Day")).value == {"version": 1, "load": 3, "patches": 0}


async def test_updating_what_is_not_cached_or_stays_the_same_changes_nothing(kit_store: Store) -> None:
    cache = cache_of(kit_store, Source())
    assert not await cache.update("Day", lambda value: value)
    await cache.get("Day")
    assert not await cache.update("Day", lambda value: dict(value))


async def test_a_failing_load_reaches_all_who_wait_and_is_tried_again(kit_store: Store) -> None:
    source = Source(held=True, fault=ValueError("the source is down"))
    cache = cache_of(kit_store, source)
    readers = [asyncio.create_task(cache.get("Day")) for _ in range(3)]
    await until(lambda: bool(source.waiting))
    source.release()
    assert [type(one) for one in await asyncio.gather(*readers, return_exceptions=True)] == [ValueError] * 3
    source.held, source.fault = False, None
    assert (await cache.get("Day")).level == "source"


async def test_another_process_loads_when_the_one_that_did_is_gone(
    kit_store: Store, clock: ManualClock
) -> None:
    lost, source = Source(held=True), Source(version=2)
    gone = asyncio.create_task(cache_of(kit_store, lost).get("Day"))
    await until(lambda: bool(lost.waiting))
    waiting = asyncio.create_task(cache_of(kit_store, source).get("Day"))
    async with asyncio.timeout(30):
        while not waiting.done():
            await clock.advance(0.5)
            await asyncio.sleep(0.005)
    assert (await waiting).value["version"] == 2
    lost.release()
    assert (await gone).value["version"] in (0, 2)
    assert (await cache_of(kit_store, source).get("Day")).value["version"] == 2


async def test_a_services_own_collection_keeps_its_names_and_keys(kit_store: Store) -> None:
    async def load(span: str) -> Loaded[list[int]]:
        return Loaded([3, 2, 1])

    cache = Cache(kit_store, "spans", load, ttl_s=lambda span: TTL_S, model=SpanCache)
    await cache.get("Week")
    found = await kit_store.tenant("-").get(SpanCache, "Week")
    assert found is not None
    assert found.doc.value == [3, 2, 1]


# -- against a plain reference -------------------------------------------------------------------------


@dataclass
class Event:
    """Something that changed what readers may see, in the order and at the time it happened."""

    at_s: float
    who: int
    loads_before: int
    patches: int = 0


@dataclass
class Model:
    """What a plain cache without levels, processes or crashes would have to answer."""

    clears: list[Event] = field(default_factory=list)
    patches: list[Event] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    loaded_at_s: list[float] = field(default_factory=list)

    def judge(self, value: dict[str, int], who: int, *, asked_s: float, now_s: float) -> None:
        load = value["load"]
        assert value["version"] == self.versions[load - 1]
        assert now_s - self.loaded_at_s[load - 1] < TTL_S + STALE_S
        for clear in self.clears:
            if clear.who == who or asked_s - clear.at_s >= MEMORY_S:
                assert load > clear.loads_before
        for patch in self.patches:
            if patch.who == who or asked_s - patch.at_s >= MEMORY_S:
                assert load > patch.loads_before or value["patches"] >= patch.patches


steps = st.lists(
    st.one_of(
        st.tuples(st.just("get"), st.integers(0, 1)),
        st.tuples(st.just("clear"), st.integers(0, 1)),
        st.tuples(st.just("patch"), st.integers(0, 1)),
        st.tuples(st.just("crash"), st.integers(0, 1)),
        st.tuples(st.just("change"), st.just(0)),
        st.tuples(st.just("advance"), st.sampled_from([1, 15, 20, 60, 100, 140])),
    ),
    max_size=40,
)


@asynccontextmanager
async def _store(clock: ManualClock) -> AsyncIterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(f"sqlite:///{folder}/a.db?synchronous=normal", DOCUMENTS, clock=clock)
        await store.migrate()
        yield store
        await store.close()


async def _play(history: list[tuple[str, int]]) -> None:
    clock, source, model = ManualClock(), Source(), Model()
    began_s, patches = clock.monotonic(), 0

    async def load(key: str) -> Loaded[Any]:
        model.versions.append(source.version)
        model.loaded_at_s.append(clock.monotonic() - began_s)
        return await source.load(key)

    def cache() -> Cache[Any]:
        words = {"stale_s": STALE_S, "memory_s": MEMORY_S, "lease_s": LEASE_S}
        return Cache(store, "stories", load, ttl_s=lambda key: TTL_S, **words)  # type: ignore[arg-type]

    async with _store(clock) as store:
        caches = [cache(), cache()]
        for act, number in history:
            now_s = clock.monotonic() - began_s
            if act == "advance":
                await clock.advance(number)
            elif act == "change":
                source.version += 1
            elif act == "crash":
                caches[number] = cache()
            elif act == "clear":
                await caches[number].clear("Day")
                model.clears.append(Event(now_s, number, source.loads))
            elif act == "patch":
                patches += 1
                if await caches[number].update("Day", _patch(patches)):
                    model.patches.append(Event(now_s, number, source.loads, patches))
            else:
                found = await caches[number].get("Day")
                model.judge(found.value, number, asked_s=now_s, now_s=clock.monotonic() - began_s)
            await _settled(caches)


def _patch(number: int) -> Callable[[dict[str, int]], dict[str, int]]:
    return lambda value: value | {"patches": number}


async def _settled(caches: list[Cache[Any]]) -> None:
    for one in caches:
        await asyncio.gather(*one._refreshes.values(), return_exceptions=True)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_answers_are_those_of_a_plain_reference_within_the_stated_staleness(
    history: list[tuple[str, int]],
) -> None:
    asyncio.run(_play(history))


def test_a_history_that_breaks_the_reference_is_found() -> None:
    broken = Model(versions=[0], loaded_at_s=[0.0], clears=[Event(0.0, 0, 1)])
    with pytest.raises(AssertionError):
        broken.judge({"version": 0, "load": 1, "patches": 0}, 0, asked_s=0.0, now_s=0.0)
