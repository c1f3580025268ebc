"""Health tells the truth: what is stuck, old or about to end shows, and goes again when it is mended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from holdfast.kit.channels import Channel
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import Endpoint, Endpoints
from holdfast.kit.outbox.circuits import PROBE_MARGIN_S, circuit_id
from holdfast.kit.outbox.models import EndpointCircuit
from holdfast.service import Context, Parts, Service
from holdfast.store import create, patch
from holdfast.store.io_counters import IO_COUNTERS
from holdfast.testing import ManualClock
from holdfast.worker.supervisor import STUCK_S
from tests.http.server_harness import ServerHarness, serving
from tests.kit.eventually import until

HOUR_MS = 3_600_000


class _Sluggish:
    """A loop that turns only when told to."""

    def __init__(self, context: Context) -> None:
        self._clock = context.clock
        self.go = asyncio.Event()
        self.last_turn_at: datetime | None = None

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.last_turn_at = self._clock.now()
            self.go.clear()
            for waiter in asyncio.as_completed([self.go.wait(), stop.wait()]):
                await waiter
                break


def _service() -> Service:
    def build(context: Context) -> Parts:
        return Parts(loops={"sluggish": _Sluggish(context)})

    return Service(name="slow", summary="Hardly moves.", documents=[], build=build)


@pytest.fixture
async def harness(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServerHarness]:
    async with serving(tmp_path, services=[_service()], clock=clock) as made:
        yield made


@contextlib.asynccontextmanager
async def _working(harness: ServerHarness) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(harness.runtime.work(stop))
    try:
        await until(lambda: all(loop.running for loop in harness.runtime.supervisor.status()))
        yield
    finally:
        stop.set()
        await task


async def _reasons(harness: ServerHarness) -> tuple[str, list[str]]:
    """The public word and the reasons that those who may know are told; both must agree."""
    _, told, _ = await harness.ask("GET", "/health")
    _, report, _ = await harness.ask("GET", "/api/v1/health", token=await harness.token("viewer"))
    assert told["status"] == report["status"]
    return told["status"], report["reasons"]


async def test_a_stuck_loop_shows_until_it_turns_again(harness: ServerHarness, clock: ManualClock) -> None:
    sluggish: Any = harness.runtime.parts["slow"].loops["sluggish"]
    async with _working(harness):
        assert await _reasons(harness) == ("ok", [])
        await clock.advance(STUCK_S + 1)
        # The other loops need a moment of the machine's to take their turn.
        await until(lambda: len(harness.runtime.supervisor.health().reasons) == 1)
        assert await _reasons(harness) == ("degraded", ["workers: slow.sluggish has not run for 121 s"])
        sluggish.go.set()
        await until(lambda: not harness.runtime.supervisor.health().reasons)
        assert await _reasons(harness) == ("ok", [])


async def test_old_work_that_nobody_does_shows_until_it_is_done(
    harness: ServerHarness, clock: ManualClock
) -> None:
    then = clock.now() - timedelta(minutes=5)
    item = InboxItem.received(tenant_id="-", source="echoes", message_id="old", received_at=then, due_at=then)
    store = harness.runtime.store.privileged()
    await store.commit(create(item))
    assert await _reasons(harness) == (
        "degraded",
        ["backlog: inbox: the oldest due work has waited for 300 s"],
    )
    await store.commit(patch(InboxItem, "echoes_old", changes={"status": "done", "due_at": None}))
    assert await _reasons(harness) == ("ok", [])


def _channel(id: str, clock: ManualClock, *, hours: float, watched: str = "room-1") -> Channel:
    now_ms = int(clock.now().timestamp() * 1000)
    return Channel(
        channel_id=id, tenant_id="acme", resource_id="r", watched_id=watched,
        expiration=now_ms + int(hours * HOUR_MS), registered_at=now_ms, last_updated_at=now_ms,
    )  # fmt: skip


async def test_a_channel_near_its_end_shows_until_another_takes_its_place(
    harness: ServerHarness, clock: ManualClock
) -> None:
    store = harness.runtime.store.privileged()
    await store.commit(create(_channel("old", clock, hours=24)))
    assert await _reasons(harness) == ("ok", [])
    await clock.advance(23 * 3_600 + 60)
    left = "channels: the channel of room-1 expires in 59m and was not renewed"
    assert await _reasons(harness) == ("degraded", [left])
    await store.commit(create(_channel("new", clock, hours=24)))
    assert await _reasons(harness) == ("ok", [])


async def test_a_channel_that_has_ended_shows_until_it_is_put_right(
    harness: ServerHarness, clock: ManualClock
) -> None:
    store = harness.runtime.store.privileged()
    await store.commit(create(_channel("old", clock, hours=24)))
    await clock.advance(24 * 3_600 + 1)
    ended = "channels: the channel of room-1 has expired and was not renewed"
    assert await _reasons(harness) == ("degraded", [ended])
    await store.commit(patch(Channel, "old", changes={"status": "stopped"}))
    assert await _reasons(harness) == ("ok", [])


async def test_a_short_life_is_no_alarm_before_its_last_tenth(
    harness: ServerHarness, clock: ManualClock
) -> None:
    await harness.runtime.store.privileged().commit(create(_channel("short", clock, hours=0.5)))
    assert await _reasons(harness) == ("ok", [])
    await clock.advance(28 * 60)
    assert (await _reasons(harness))[0] == "degraded"


async def test_those_who_ask_at_once_share_one_look(harness: ServerHarness, clock: ManualClock) -> None:
    await harness.runtime.store.privileged().commit(create(_channel("a", clock, hours=2)))
    before = IO_COUNTERS.reads
    await harness.runtime.health()
    once = IO_COUNTERS.reads - before
    assert once > 0
    answers = await asyncio.gather(*(harness.runtime.health() for _ in range(50)))
    assert {answer.status for answer in answers} == {"ok"}
    assert IO_COUNTERS.reads - before == 2 * once
    # Whoever gives up waiting does not take the look from the others.
    first, second = (asyncio.create_task(harness.runtime.health()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).status == "ok"


async def test_figures_tell_what_was_read_and_written(harness: ServerHarness, clock: ManualClock) -> None:
    token = await harness.token("viewer")
    await _documents(harness, token)
    before = await _documents(harness, token)
    store = harness.runtime.store.privileged()
    await store.commit(create(_channel("a", clock, hours=2)), create(_channel("b", clock, hours=1)))
    await store.get_many(Channel, ["a", "b", "c"])
    after = await _documents(harness, token)
    # Asking for the figures reads, too: the token, and what they tell.
    assert after["written"] - before["written"] == 2
    assert 3 <= after["read"] - before["read"] <= 20


async def test_a_kind_without_an_open_channel_has_no_end_to_tell_of(
    harness: ServerHarness, clock: ManualClock
) -> None:
    store, token = harness.runtime.store.privileged(), await harness.token("viewer")
    await store.commit(create(_channel("a", clock, hours=1)))
    _, text, _ = await harness.ask("GET", "/metrics", token=token)
    assert "holdfast_channel_soonest_end_timestamp_seconds{" in text
    await store.commit(patch(Channel, "a", changes={"status": "stopped"}))
    _, text, _ = await harness.ask("GET", "/metrics", token=token)
    assert "holdfast_channel_soonest_end_timestamp_seconds{" not in text


async def _documents(harness: ServerHarness, token: str) -> dict[str, float]:
    _, text, _ = await harness.ask("GET", "/metrics", token=token)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return {s.labels["act"]: s.value for s in families["holdfast_documents_since_start"].samples}


async def test_figures_tell_loops_backlog_and_the_first_end_of_a_channel(
    harness: ServerHarness, clock: ManualClock
) -> None:
    await harness.runtime.store.privileged().commit(
        create(_channel("a", clock, hours=2)), create(_channel("b", clock, hours=1))
    )
    then = clock.now() - timedelta(seconds=30)
    for name in "xyz":
        item = InboxItem.received(
            tenant_id="acme", source="s", message_id=name, received_at=then, due_at=then
        )
        await harness.runtime.store.privileged().commit(create(item))
    _, text, _ = await harness.ask("GET", "/metrics", token=await harness.token("viewer"))
    families = {family.name: family for family in text_string_to_metric_families(text)}
    (first,) = families["holdfast_channel_soonest_end_timestamp_seconds"].samples
    assert first.value == clock.now().timestamp() + 3_600
    ages = families["holdfast_oldest_due_age_seconds"].samples
    assert {sample.labels["queue"]: sample.value for sample in ages}["inbox"] == 30
    depths = {s.labels["queue"]: s.value for s in families["holdfast_queue_depth"].samples}
    assert (depths["inbox"], depths["outbox"]) == (3, 0)


async def test_a_disabled_endpoint_of_any_tenant_shows_until_it_is_enabled(
    harness: ServerHarness, clock: ManualClock
) -> None:
    store = harness.runtime.store.tenant("acme")
    endpoint = Endpoint(id="rms", tenant_id="acme", url="https://rms.example", created_at=clock.now())
    await store.commit(create(endpoint))
    assert (await harness.runtime.health()).status == "ok"
    await Endpoints(store).disable("rms", reason="gone", by="ann")
    health = await harness.runtime.health()
    assert (health.status, health.reasons) == (
        "degraded",
        ("endpoints: holdfast: 1 disabled, which take no events",),
    )
    await Endpoints(store).enable("rms", by="ann")
    assert (await harness.runtime.health()).status == "ok"


async def test_an_open_circuit_is_counted_until_its_probe_is_long_over(
    harness: ServerHarness, clock: ManualClock
) -> None:
    circuit = EndpointCircuit(
        id=circuit_id(Endpoint, "rms"), tenant_id="acme", collection="holdfast_endpoints", endpoint_id="rms",
        failures=10, probe_at=clock.now() + timedelta(seconds=4),
    )  # fmt: skip
    await harness.runtime.store.tenant("acme").commit(create(circuit))
    health = await harness.runtime.health()
    assert (health.status, health.reasons) == (
        "degraded",
        ("endpoints: holdfast: 1 paused by the circuit breaker after failures",),
    )
    await clock.advance(4 + PROBE_MARGIN_S + 1)
    assert (await harness.runtime.health()).status == "ok"
