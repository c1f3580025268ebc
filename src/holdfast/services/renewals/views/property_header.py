"""What stands above every page of a property: its run, the job at work, where its events go."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from holdfast.services.renewals.domain.dates import zone_or_utc
from holdfast.services.renewals.models import (
    CalculationJob,
    DeadLetterRow,
    DeliveryState,
    Property,
    PropertyState,
    RmsEndpoint,
    Summary,
    TriggerJob,
)
from holdfast.services.renewals.models.scores import Sending
from holdfast.services.renewals.operations import Renewals
from holdfast.store import Query, Store

PROPERTIES_MAX: Final = 200
ON_THE_WAY: Final = ("pending", "sending", "failed")
# Whom a run tells the RMS of by itself, in words.
SENDINGS: Final[dict[Sending, str]] = {
    "nothing": "nobody",
    "high": "those at high risk",
    "flagged": "those at high or medium risk",
}


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """A property as its pages introduce it; `job` and `telling` are those under way, or the last, `run` is
    the latest."""

    property: Property
    zone: ZoneInfo
    run: Summary | None
    job: CalculationJob | None
    telling: TriggerJob | None
    endpoint: RmsEndpoint | None
    send: Sending
    waiting: int
    dead: int

    def told_of(self) -> str:
        """Whom the next run tells the RMS of by itself; empty for nobody, and where no RMS is set."""
        return "" if self.send == "nothing" or self.endpoint is None else SENDINGS[self.send]

    def when(self, instant: datetime) -> str:
        """An instant by the property's own clock."""
        return instant.astimezone(self.zone).strftime("%Y-%m-%d %H:%M")


async def heading(renewals: Renewals, tenant_id: str, property_id: str) -> Heading:
    """`NotFoundError` where there is no such property."""
    store = renewals.store(tenant_id)
    portfolio = renewals.portfolio(tenant_id)
    house = await portfolio.property(property_id)
    state, telling, endpoint, rules, waiting, dead = await asyncio.gather(
        store.get(PropertyState, property_id),
        portfolio.trigger_jobs.latest(property_id),
        store.get(RmsEndpoint, property_id),
        renewals.rules(tenant_id).get(property_id),
        count_waiting(store, property_id),
        count_dead(store, property_id),
    )
    job = None if state is None else await store.get(CalculationJob, state.doc.job_id)
    return Heading(
        property=house, zone=zone_or_utc(house.time_zone),
        run=None if state is None else state.doc.latest, job=None if job is None else job.doc,
        telling=telling, endpoint=None if endpoint is None else endpoint.doc, send=rules.send,
        waiting=waiting, dead=dead,
    )  # fmt: skip


async def choices(store: Store, head: Heading | None) -> list[Property]:
    """Properties to choose from, by name; the chosen one is among them, however many there are."""
    found = (await store.query(Query(Property).order_by("name").limit(PROPERTIES_MAX))).docs
    if head is not None and head.property.id not in {one.id for one in found}:
        found.append(head.property)
    return found


async def count_waiting(store: Store, property_id: str) -> int:
    """How many events of a property are on their way or wait to be tried again."""
    query = Query(DeliveryState).where("endpoint_id", "==", property_id)
    return await store.count(query.where("status", "in", list(ON_THE_WAY)).order_by("-created_at"))


async def count_dead(store: Store, property_id: str | None = None) -> int:
    """How many dead letters nobody has dealt with, of a property or of all."""
    query = Query(DeadLetterRow).where("resolved", "==", False)
    if property_id is not None:
        query = query.where("endpoint_id", "==", property_id)
    return await store.count(query.order_by("-died_at"))
