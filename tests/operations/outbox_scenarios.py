"""A scenario for each operation on deliveries, dead letters and endpoints, with the kit's own outbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.kit.outbox import DeadLetter, Delivery, Endpoint, Event, Outbox
from holdfast.operation import Operator
from holdfast.operations import dead_letters, deliveries, endpoints
from holdfast.operations.endpoints import EndpointSettings, NewEndpoint
from holdfast.runtime import KIT_PART, Runtime
from holdfast.store import create, patch
from tests.operations.scenarios import World, scenario

URL = "https://receiver.example/hook"


async def _endpoint(world: World, **fields: Any) -> Endpoint:
    endpoint = Endpoint(id="rms", url=URL, created_at=world.runtime.clock.now(), **fields)
    await world.runtime.store.tenant("-").commit(create(endpoint))
    return endpoint


async def _waiting(world: World) -> str:
    store = world.runtime.store.tenant("-")
    event = Event(type="lease.renewed", body=b"{}", id="e1")
    (delivery_id,) = await Outbox(store).send(event, [await _endpoint(world)])
    return delivery_id


async def _dead(world: World) -> str:
    store, delivery_id = world.runtime.store.tenant("-"), await _waiting(world)
    for status in ("sending", "dead"):
        await store.commit(patch(Delivery, delivery_id, changes={"status": status}))
    letter = DeadLetter(
        id=delivery_id, event_id="e1", endpoint_id="rms", event_type="lease.renewed", reason="410",
        died_at=world.runtime.clock.now(),
    )  # fmt: skip
    await store.commit(create(letter))
    return delivery_id


@scenario(deliveries.replay)
async def _(world: World) -> None:
    delivery_id = await _dead(world)
    await world.act(deliveries.replay(world.runtime, world.by, KIT_PART, delivery_id))


@scenario(deliveries.cancel)
async def _(world: World) -> None:
    delivery_id = await _waiting(world)
    await world.act(deliveries.cancel(world.runtime, world.by, KIT_PART, delivery_id))


@scenario(dead_letters.replay)
async def _(world: World) -> None:
    delivery_id = await _dead(world)
    await world.act(dead_letters.replay(world.runtime, world.by, KIT_PART, delivery_id))


@scenario(dead_letters.replay_all)
async def _(world: World) -> None:
    await _dead(world)
    await world.act(dead_letters.replay_all(world.runtime, world.by, KIT_PART, dry_run=False))


@scenario(dead_letters.resolve)
async def _(world: World) -> None:
    delivery_id = await _dead(world)
    await world.act(dead_letters.resolve(world.runtime, world.by, KIT_PART, delivery_id, note="by hand"))


@scenario(endpoints.create)
async def _(world: World) -> None:
    await world.act(endpoints.create(world.runtime, world.by, KIT_PART, NewEndpoint(url=URL)))


@scenario(endpoints.update)
async def _(world: World) -> None:
    await _endpoint(world)
    settings = EndpointSettings(url=URL, concurrency=2)
    await world.act(endpoints.update(world.runtime, world.by, KIT_PART, "rms", settings))


@scenario(endpoints.delete)
async def _(world: World) -> None:
    await _waiting(world)
    await world.act(endpoints.delete(world.runtime, world.by, KIT_PART, "rms"))


@scenario(endpoints.replay_skipped)
async def _(world: World) -> None:
    store, endpoint = world.runtime.store.tenant("-"), await _endpoint(world, status="disabled")
    await Outbox(store).send(Event(type="lease.renewed", body=b"{}", id="e1"), [endpoint])
    await store.commit(patch(Endpoint, "rms", changes={"status": "active"}))
    await world.act(endpoints.replay_skipped(world.runtime, world.by, KIT_PART, "rms", dry_run=False))


def _on_an_endpoint(act: Callable[[Runtime, Operator, str, str], Any], **fields: Any) -> None:
    @scenario(act)
    async def _(world: World) -> None:
        await _endpoint(world, **fields)
        await world.act(act(world.runtime, world.by, KIT_PART, "rms"))


_on_an_endpoint(endpoints.pause)
_on_an_endpoint(endpoints.resume, status="paused")
_on_an_endpoint(endpoints.disable)
_on_an_endpoint(endpoints.enable, status="disabled")
_on_an_endpoint(endpoints.rotate)
_on_an_endpoint(endpoints.send_test)
