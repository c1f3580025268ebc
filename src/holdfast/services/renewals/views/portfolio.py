"""The first page: every property with its residents by tier, its last run and events in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.service import Notice, Page, PageRequest
from holdfast.services.renewals.models import CalculationJob, RmsEndpoint
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.deliveries import RmsDeliveries
from holdfast.services.renewals.queries.portfolio import PropertySummary
from holdfast.store import Store

ROWS: Final = 25


class PropertyRow(msgspec.Struct, frozen=True, kw_only=True):
    property: PropertySummary
    job: CalculationJob | None
    endpoint: RmsEndpoint | None
    in_flight: int
    dead: int


def pages(renewals: Renewals) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        store, deliveries = renewals.store(ask.tenant_id), renewals.deliveries(ask.tenant_id)
        summaries, after = await renewals.portfolio(ask.tenant_id).summaries(limit=ROWS, cursor=ask.cursor)
        rows = await _rows(store, summaries)
        complete = after is None and ask.cursor is None
        source, dead = await renewals.source_state(ask.tenant_id), await deliveries.count_dead()
        return {"rows": rows, "after": after, "complete": complete, "dead": dead, "source": source}

    return [Page(path="", title="Portfolio", template="portfolio.html", data=listed, live=("renewals",))]


async def _rows(store: Store, summaries: list[PropertySummary]) -> list[PropertyRow]:
    ids, deliveries = [one.property_id for one in summaries], RmsDeliveries(store)
    jobs = await store.get_many(CalculationJob, [one.job_id for one in summaries if one.job_id is not None])
    by_id = {job.doc.id: job.doc for job in jobs if job is not None}
    endpoints = await store.get_many(RmsEndpoint, ids)
    in_flight = await asyncio.gather(*(deliveries.count_in_flight(id) for id in ids))
    dead = await asyncio.gather(*(deliveries.count_dead(id) for id in ids))
    return [
        PropertyRow(
            property=one, job=by_id.get(one.job_id or ""), in_flight=in_flight[at], dead=dead[at],
            endpoint=None if (endpoint := endpoints[at]) is None else endpoint.doc,
        )
        for at, one in enumerate(summaries)
    ]  # fmt: skip


async def attention(renewals: Renewals, tenant_id: str) -> list[Notice]:
    """A source that can't be read."""
    state = await renewals.source_state(tenant_id)
    if state is None or not state.error:
        return []
    text = f"the source of renewals could not be read: {state.error}"
    return [Notice(tone="warn", text=text, path="/console/renewals", tenant_id=tenant_id)]
