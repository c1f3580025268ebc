"""The first page: every property with its residents by tier, its last run and what is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from holdfast.service import Page, PageRequest
from holdfast.services.renewals.models import CalculationJob, RmsEndpoint
from holdfast.services.renewals.operations import Renewals
from holdfast.services.renewals.queries.portfolio import PropertySummary
from holdfast.services.renewals.views.property_header import count_dead, count_waiting
from holdfast.store import Store

ROWS: Final = 25


class PropertyRow(msgspec.Struct, frozen=True, kw_only=True):
    standing: PropertySummary
    job: CalculationJob | None
    endpoint: RmsEndpoint | None
    waiting: int
    dead: int


def pages(renewals: Renewals) -> list[Page]:
    async def listed(ask: PageRequest) -> Mapping[str, Any]:
        store = renewals.store(ask.tenant_id)
        standings, after = await renewals.portfolio(ask.tenant_id).standings(limit=ROWS, cursor=ask.cursor)
        rows = await _rows(store, standings)
        whole = after is None and ask.cursor is None
        source, dead = await renewals.source_state(ask.tenant_id), await count_dead(store)
        return {"rows": rows, "after": after, "whole": whole, "dead": dead, "source": source}

    return [
        Page(path="", title="Portfolio", template="portfolio.html", data=listed, live=("renewals",)),
    ]


async def _rows(store: Store, standings: list[PropertySummary]) -> list[PropertyRow]:
    ids = [one.property_id for one in standings]
    jobs = await store.get_many(CalculationJob, [one.job_id for one in standings if one.job_id is not None])
    by_id = {job.doc.id: job.doc for job in jobs if job is not None}
    endpoints = await store.get_many(RmsEndpoint, ids)
    waiting = await asyncio.gather(*(count_waiting(store, id) for id in ids))
    dead = await asyncio.gather(*(count_dead(store, id) for id in ids))
    return [
        PropertyRow(
            standing=one, job=by_id.get(one.job_id or ""), waiting=waiting[at], dead=dead[at],
            endpoint=None if (found := endpoints[at]) is None else found.doc,
        )
        for at, one in enumerate(standings)
    ]  # fmt: skip
