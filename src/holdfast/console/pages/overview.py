"""The first page: how things are, what needs somebody, what went through lately."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

from holdfast.console.activity_charts import RANGES, ActivityCharts
from holdfast.kit import ALL_TENANTS, NO_TENANT
from holdfast.kit.access.authorization import has_role
from holdfast.kit.connections import Connection
from holdfast.kit.inbox import InboxItem
from holdfast.kit.outbox import OutboxModels
from holdfast.kit.outbox.models import EndpointStatus
from holdfast.kit.schedules import Schedule
from holdfast.operations.endpoints import CircuitRow, EndpointRow, list_circuits, list_endpoints
from holdfast.operations.outboxes import dead_letter_counts, unresolved
from holdfast.operations.tenants import Tenants
from holdfast.plural import plural
from holdfast.runtime import KIT_PART, Runtime
from holdfast.service import Notice, Page, PageRequest
from holdfast.store import Query, Store

LOOKED_AT_MAX: Final = 200
ENDPOINTS_SHOWN: Final = 10
TENANTS_ASKED_MAX: Final = 50
FAILED_LATELY: Final = timedelta(hours=24)
_TOPICS: Final = (
    "deliveries", "dead-letters", "inbox", "schedules", "endpoints", "connections", "pulse", "runs",
)  # fmt: skip
_WAITING: Final = ("pending", "sending", "failed")


class OverviewPage:
    """What the first page shows."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._tenants = runtime, Tenants(runtime)

    async def data(self, ask: PageRequest) -> Mapping[str, Any]:
        range = ask.choice("range", RANGES, default="1h")
        whole = ask.tenant_id in (NO_TENANT, ALL_TENANTS) and has_role(ask.caller, "viewer", NO_TENANT)
        return {
            "whole": whole,
            "attention": await self._attention(ask),
            "services": self._services(),
            "topics": _topics(self._runtime),
            "runs": await self._runs(ask.tenant_id),
            **await (self._of_whole(ask, range) if whole else self._of_tenant(ask.tenant_id)),
        }

    async def _of_tenant(self, tenant_id: str) -> dict[str, Any]:
        store, outboxes = self._runtime.store.tenant(tenant_id), self._runtime.outboxes
        waiting = {
            state: {name: await _count(store, one.models, state) for name, one in outboxes.items()}
            for state in _WAITING
        }
        dead = await dead_letter_counts(self._runtime, tenant_id)
        in_flight = {name: waiting["pending"][name] + waiting["sending"][name] for name in outboxes}
        return {"figures": {"in_flight": in_flight, "failed": waiting["failed"], "dead": dead}}

    async def _runs(self, tenant_id: str) -> dict[str, dict[str, int]]:
        """Runs in progress, waiting to start and failed lately, by collection."""
        collections, since = self._runtime.runs(tenant_id), self._runtime.clock.now() - FAILED_LATELY
        return {
            "running": {name: await runs.count("running") for name, runs in collections.items()},
            "pending": {name: await runs.count("pending") for name, runs in collections.items()},
            "failed": {name: await runs.count("failed", since=since) for name, runs in collections.items()},
        }

    async def _of_whole(self, ask: PageRequest, range: str) -> dict[str, Any]:
        return {
            "dead": sum((await dead_letter_counts(self._runtime, ask.tenant_id)).values()),
            "health": await self._runtime.health(),
            "backlog": await self._runtime.backlog(),
            "loops": self._runtime.supervisor.status() if self._runtime.working else [],
            "charts": await ActivityCharts.read(self._runtime.store, range),
            "ranges": list(RANGES),
        }

    def _services(self) -> list[dict[str, Any]]:
        return [
            {"service": one, "first": next((p for p in self._runtime.parts[one.name].pages if p.nav), None)}
            for one in self._runtime.services
        ]

    async def _attention(self, ask: PageRequest) -> list[Notice]:
        store = self._runtime.store_of(ask.tenant_id)
        found = await self._dead_letters(store)
        if ask.may("admin"):
            parked = Query(InboxItem).where("status", "==", "parked").order_by("-received_at")
            found += await _told(
                store, parked, "parked message", tone="bad", path="/console/inbox", query={"status": "parked"}
            )
            lapsed = Query(Connection).where("status", "==", "needs_reauth").order_by("-connected_at")
            found += await _told(
                store, lapsed, "lapsed connection", tone="warn", path="/console/connections",
                query={"status": "needs_reauth"},
            )  # fmt: skip
        return [*found, *await self._endpoints(ask), *await _schedules(store), *await self._of_services(ask)]

    async def _of_services(self, ask: PageRequest) -> list[Notice]:
        """What services tell of the tenant, or of each of the known ones, as far as a page can ask."""
        asked = [one.attention for one in self._runtime.parts.values() if one.attention is not None]
        if ask.tenant_id != ALL_TENANTS:
            return [notice for attention in asked for notice in await attention(ask.tenant_id)]
        known = (await self._tenants.known())[:TENANTS_ASKED_MAX] if asked else []
        found = await asyncio.gather(*(attention(tenant) for attention in asked for tenant in known))
        return [_with_tenant(notice) for notices in found for notice in notices]

    async def _dead_letters(self, store: Store) -> list[Notice]:
        found: list[Notice] = []
        for name, outbox in self._runtime.outboxes.items():
            found += await _told(
                store, unresolved(outbox.models), "dead letter", tone="bad", path="/console/dead-letters",
                query={} if name == KIT_PART else {"outbox": name},
                inside="" if name == KIT_PART else f" in {name}",
            )  # fmt: skip
        return found

    async def _endpoints(self, ask: PageRequest) -> list[Notice]:
        """Paused, disabled and failing endpoints, each with the page that the caller may see."""
        found: list[Notice] = []
        statuses: tuple[EndpointStatus, ...] = ("paused", "disabled")
        for name, status in itertools.product(self._runtime.outboxes, statuses):
            page = await list_endpoints(
                self._runtime, ask.tenant_id, name, status=status, limit=ENDPOINTS_SHOWN
            )
            found += [_stopped(one, ask) for one in page.items]
        for name in self._runtime.outboxes:
            circuits = await list_circuits(self._runtime, ask.tenant_id, name, limit=ENDPOINTS_SHOWN)
            found += [_endpoint_notice(one, one.endpoint_id, ask, said=one.summary) for one in circuits]
        return found


def _with_tenant(notice: Notice) -> Notice:
    if notice.tenant_id == NO_TENANT:
        return notice
    return msgspec.structs.replace(notice, text=f"{notice.tenant_id}: {notice.text}")


def _stopped(endpoint: EndpointRow, ask: PageRequest) -> Notice:
    said = f"{endpoint.status}: {endpoint.reason or 'no reason given'}"
    return _endpoint_notice(endpoint, endpoint.id, ask, said=said)


def _endpoint_notice(of: EndpointRow | CircuitRow, id: str, ask: PageRequest, *, said: str) -> Notice:
    inside = "" if of.outbox == KIT_PART else f" of {of.outbox}"
    path, query = "/console/deliveries", {"outbox": of.outbox, "endpoint": id}
    if ask.may("developer"):
        path, query = f"/console/endpoints/{of.outbox}/{id}", {}
    return Notice(
        tone="warn", path=path, query=query, tenant_id=of.tenant_id, text=f"endpoint {id}{inside} is {said}"
    )


async def _count(store: Store, models: OutboxModels, state: str) -> int:
    return await store.count(Query(models.delivery).where("status", "==", state).order_by("-created_at"))


async def _told(
    store: Store,
    wanted: Query[Any],
    what: str,
    *,
    tone: Literal["warn", "bad"],
    path: str,
    query: Mapping[str, str] = {},
    inside: str = "",
) -> list[Notice]:
    """How many of the newest belong to which tenant, and whether there are more than were looked at."""
    page = await store.query(wanted.limit(LOOKED_AT_MAX))
    notices = []
    for tenant_id, count in Counter(doc.tenant_id for doc in page.docs).most_common():
        said = f"{'at least ' if page.cursor else ''}{plural(count, what)}"
        where = "" if tenant_id == NO_TENANT else f" of {tenant_id}"
        notices.append(
            Notice(tone=tone, text=said + inside + where, path=path, tenant_id=tenant_id, query=query)
        )
    return notices


async def _schedules(store: Store) -> list[Notice]:
    page = await store.query(Query(Schedule).order_by("name").limit(LOOKED_AT_MAX))
    return [
        Notice(
            tone="warn",
            text=f"the last run of {one.name} failed",
            path="/console/schedules",
            tenant_id=one.tenant_id,
        )
        for one in page.docs
        if one.last_status == "failed"
    ]


def _topics(runtime: Runtime) -> tuple[str, ...]:
    """What the page is about: the kit's, and each service that may tell of something."""
    return (*_TOPICS, *(one.address for one in runtime.services if runtime.parts[one.name].attention))


def pages(runtime: Runtime) -> list[Page]:
    data, live = OverviewPage(runtime).data, _topics(runtime)
    return [Page(path="", title="Overview", template="overview.html", data=data, live=live, all_tenants=True)]
