"""The kit alone: events go to a simulated revenue-management system, which can be broken."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, Final

import msgspec

from holdfast.demo.rms import RMS_CONTROLS, describe_behaviour
from holdfast.demo.scene import Control, Fact, Scene, Stage
from holdfast.errors import AlreadyExistsError
from holdfast.kit.outbox import (
    DeadLetter,
    Endpoint,
    Endpoints,
    EndpointSecrets,
    Event,
    Rate,
    RetryPolicy,
    new_secret,
)
from holdfast.operations import tokens
from holdfast.simulators.rms import InjectedFault, RmsSimulator
from holdfast.store import PRESENT, Query, create, patch

TENANT: Final = "demo"
LIVE: Final = "demo-rms"
OLD: Final = "demo-old-rms"
SEEDED: Final = 24
MANY: Final = 100
_TYPES: Final = ("lease.signed", "lease.renewed", "notice.given", "unit.vacated", "rent.changed")
_UNITS: Final = ("A-101", "A-204", "B-112", "B-310", "C-007", "C-218")


async def open_endpoints(stage: Stage) -> None:
    """Two receivers; their addresses are new at every start."""
    rms = stage.world.get(RmsSimulator)
    await _set_endpoint(stage, LIVE, rms.webhook_url("harbour-view"), waits_s=(1.0, 2.0, 4.0, 8.0))
    await _set_endpoint(stage, OLD, rms.webhook_url("old-mill"), waits_s=())


async def _set_endpoint(stage: Stage, endpoint_id: str, url: str, *, waits_s: tuple[float, ...]) -> None:
    acme = stage.store.tenant(TENANT)
    if await acme.get(Endpoint, endpoint_id) is not None:
        await acme.commit(patch(Endpoint, endpoint_id, changes={"url": url}, expect=PRESENT))
        return
    new = Endpoint(
        id=endpoint_id, tenant_id=TENANT, url=url, created_at=stage.clock.now(),
        retry=RetryPolicy(waits_s=waits_s, jitter=0.1), rate=Rate(per_s=50.0, burst=20),
    )  # fmt: skip
    new.secrets = [EndpointSecrets(stage.runtime.vault).seal(new, new_secret())]
    await acme.commit(create(new))


async def seed(stage: Stage) -> None:
    """A token, a day's events, and three that an old receiver refused."""
    stage.world.get(RmsSimulator).inject(
        InjectedFault(count=3, path="/old-mill", status=500, reason="retired")
    )
    if not (await tokens.list_tokens(stage.runtime, TENANT, limit=1)).items:
        await tokens.create(stage.runtime, stage.operator(TENANT), "property system", role="viewer")
    now = stage.clock.now()
    for number in range(SEEDED):
        event = _event(f"demo-seed-{number:03}", random.Random(number))
        event = msgspec.structs.replace(event, occurred_at=now - timedelta(minutes=20 * (SEEDED - number)))
        await _send(stage, OLD if number in (5, 11, 17) else LIVE, event)


async def act(stage: Stage) -> None:
    await _send(stage, LIVE, _event(None, random.Random()))


async def _send(stage: Stage, endpoint_id: str, event: Event) -> None:
    stored = await stage.store.tenant(TENANT).get(Endpoint, endpoint_id)
    assert stored is not None
    counted = stage.runtime.meter(TENANT).writes(f"{event.id} sent", {"events": 1}, at=event.occurred_at)
    try:
        await stage.outbox(TENANT).send(event, [stored.doc], *counted)
    except AlreadyExistsError:
        return  # an interrupted seed runs again


def _event(event_id: str | None, dice: random.Random) -> Event:
    kind, unit = dice.choice(_TYPES), dice.choice(_UNITS)
    body: dict[str, Any] = {"type": kind, "property": "harbour-view", "unit": unit}
    if kind in ("lease.signed", "lease.renewed", "rent.changed"):
        body["rent"] = {"amount": f"{dice.randrange(1_450, 3_200, 25)}.00", "currency": "USD"}
    new = Event(type=kind, body=msgspec.json.encode(body))
    return msgspec.structs.replace(new, id=event_id) if event_id else new


async def enable(stage: Stage) -> None:
    await Endpoints(stage.store.tenant(TENANT)).enable(LIVE, reason="RMS restored", by="demo")


async def send_one(stage: Stage) -> str:
    await act(stage)
    return "One event is being delivered: see Deliveries."


async def send_many(stage: Stage) -> str:
    for _ in range(MANY):
        await act(stage)
    return f"{MANY} events are being delivered: see Deliveries."


async def facts(stage: Stage) -> list[Fact]:
    rms, tenant = stage.world.get(RmsSimulator).state, stage.store.tenant(TENANT)
    counts = rms.counts()
    stored = await tenant.get(Endpoint, LIVE)
    dead = await tenant.count(Query(DeadLetter).where("resolved", "==", False).order_by("-died_at"))
    return [
        ("RMS response", describe_behaviour(stage)),
        ("Endpoint", stored.doc.status if stored else "missing"),
        ("Messages received", f"{counts['received']}, {counts['accepted']} accepted"),
        ("Dead letters", str(dead)),
    ]


scene = Scene(
    title="Webhooks",
    about="A property's events go to a revenue-management system (RMS). Break it, watch, restore it.",
    open=open_endpoints,
    seed=seed,
    act=act,
    on_restored=enable,
    controls=[
        Control(name="send", label="Send an event", kind="primary", run=send_one),
        Control(name="send-many", label=f"Send {MANY} events", run=send_many),
        *RMS_CONTROLS,
    ],
    facts=facts,
    links=[
        (f"/console/deliveries?tenant={TENANT}", "Deliveries"),
        (f"/console/dead-letters?tenant={TENANT}", "Dead letters"),
    ],
    live=["deliveries", "dead-letters", "endpoints"],
)
