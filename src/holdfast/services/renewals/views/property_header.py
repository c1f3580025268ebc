"""The header of every page of a property: its run, the job under way, its endpoint."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from holdfast.services.renewals.domain.dates import zone_or_utc
from holdfast.services.renewals.domain.rules import Sending
from holdfast.services.renewals.models import (
    CalculationJob,
    Property,
    PropertyState,
    RmsEndpoint,
    Summary,
    TriggerJob,
)
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.rules import rules_of
from holdfast.store import Query, Store

PROPERTIES_MAX: Final = 200
# Whom a run sends to the RMS unasked, in words.
SENDINGS: Final[dict[Sending, str]] = {
    "nothing": "nobody",
    "high": "those at high risk",
    "flagged": "those at high or medium risk",
}


class PropertyHeader(msgspec.Struct, frozen=True, kw_only=True):
    """A property as its pages introduce it; `job` and `trigger_job` are those under way, or the last, `run`
    is the latest."""

    property: Property
    zone: ZoneInfo
    run: Summary | None
    job: CalculationJob | None
    trigger_job: TriggerJob | None
    endpoint: RmsEndpoint | None
    send: Sending
    in_flight: int
    dead: int

    def sends(self) -> str:
        """Whom the next run sends to the RMS; empty for nobody, and where there is no endpoint."""
        return "" if self.send == "nothing" or self.endpoint is None else SENDINGS[self.send]

    def when(self, instant: datetime) -> str:
        """An instant by the property's own clock."""
        return instant.astimezone(self.zone).strftime("%Y-%m-%d %H:%M")


async def load_header(renewals: Renewals, tenant_id: str, property_id: str) -> PropertyHeader:
    """The header of a property, or NotFoundError."""
    store, deliveries = renewals.store(tenant_id), renewals.deliveries(tenant_id)
    property = await renewals.portfolio(tenant_id).property(property_id)
    state, trigger_job, endpoint, rules, in_flight, dead = await asyncio.gather(
        store.get(PropertyState, property_id),
        renewals.trigger_jobs(tenant_id).latest(property_id),
        store.get(RmsEndpoint, property_id),
        rules_of(store, property_id),
        deliveries.count_in_flight(property_id),
        deliveries.count_dead(property_id),
    )
    job = None if state is None else await store.get(CalculationJob, state.doc.job_id)
    return PropertyHeader(
        property=property, zone=zone_or_utc(property.time_zone),
        run=None if state is None else state.doc.latest, job=None if job is None else job.doc,
        trigger_job=trigger_job, endpoint=None if endpoint is None else endpoint.doc, send=rules.send,
        in_flight=in_flight, dead=dead,
    )  # fmt: skip


async def choices(store: Store, head: PropertyHeader | None) -> list[Property]:
    """Properties to choose from, by name; always with the chosen one."""
    properties = (await store.query(Query(Property).order_by("name").limit(PROPERTIES_MAX))).docs
    if head is not None and head.property.id not in {one.id for one in properties}:
        properties.append(head.property)
    return properties
