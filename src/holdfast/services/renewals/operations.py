"""The service at work in one process: its loops, and one portfolio's parts for whoever asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

from holdfast.kit.audit import AuditEntry
from holdfast.kit.outbox import Delivery, Endpoint
from holdfast.kit.runs import Runner
from holdfast.service import Context, Health, Notice
from holdfast.services.renewals.endpoints import RmsEndpoints
from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.refresh import SourceRefresh
from holdfast.services.renewals.ingest.sources import TableSource
from holdfast.services.renewals.jobs.calculation import workflow
from holdfast.services.renewals.jobs.trigger_jobs import AuditHook, trigger_workflow
from holdfast.services.renewals.metrics import RenewalsMetrics
from holdfast.services.renewals.models import (
    JOBS,
    OUTBOX_MODELS,
    TRIGGER_JOBS,
    DeadLetterRow,
    RmsEndpoint,
    SourceState,
)
from holdfast.services.renewals.queries.deliveries import RmsDeliveries
from holdfast.services.renewals.queries.outcomes import Outcomes
from holdfast.services.renewals.queries.portfolio import Portfolio
from holdfast.services.renewals.queries.rules import RuleBook
from holdfast.store import Query, Store, Transaction

T = TypeVar("T")
Act: TypeAlias = Callable[[Transaction], Awaitable[T]]
# How many properties one process calculates, and tells of whole tiers of, at the same time.
CONCURRENCY: Final = 4
CONSOLE: Final = "/console/renewals"


class Renewals:
    """What routes, commands and pages work with.

    Example: `await renewals.portfolio("-").jobs.start("property-7")`
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.clock = context.clock
        self.workflow = workflow(context.store, subprocess_pool=context.subprocess_pool)
        self.dispatcher = context.dispatcher(
            OUTBOX_MODELS, headers=_headers, plain_header="X-Webhook-Signature"
        )
        self.runner = Runner(
            context.store.privileged(), [self.workflow], models=JOBS, concurrency=CONCURRENCY
        )
        self.triggering = trigger_workflow(context.store)
        self.trigger_runner = Runner(
            context.store.privileged(), [self.triggering], models=TRIGGER_JOBS, concurrency=CONCURRENCY
        )
        self.refreshing = SourceRefresh(context.store, context.settings)
        self.metrics = RenewalsMetrics(self.dispatcher, self.runner, self.trigger_runner, self.refreshing)

    def store(self, tenant_id: str) -> Store:
        return self.context.store.tenant(tenant_id)

    def portfolio(self, tenant_id: str) -> Portfolio:
        return Portfolio(
            self.store(tenant_id), self.workflow, triggering=self.triggering, local_dispatcher=self.dispatcher
        )

    def deliveries(self, tenant_id: str) -> RmsDeliveries:
        return RmsDeliveries(self.store(tenant_id))

    def endpoints(self, tenant_id: str) -> RmsEndpoints:
        return RmsEndpoints(self.store(tenant_id), self.context.vault)

    def outcomes(self, tenant_id: str) -> Outcomes:
        return Outcomes(self.store(tenant_id))

    def rules(self, tenant_id: str) -> RuleBook:
        return RuleBook(self.store(tenant_id))

    def importer(self, tenant_id: str, source: TableSource, *, replace: bool = False) -> Import:
        return Import(self.store(tenant_id), source, replace=replace)

    async def source_state(self, tenant_id: str) -> SourceState | None:
        """Where a portfolio's data comes from and which moment it is of; None before the first import."""
        found = await self.store(tenant_id).get(SourceState, tenant_id)
        return None if found is None else found.doc

    async def note(
        self, tenant_id: str, actor: str, action: str, *, subject: str, details: Any = None
    ) -> None:
        """Put what somebody did on the portfolio's audit trail."""
        entry = AuditEntry(actor=actor, action=f"renewals.{action}", subject=subject, details=details)
        await self.context.audit(tenant_id).append(entry)

    async def noted(
        self, tenant_id: str, actor: str, action: str, *, subject: str, act: Act[T], details: Any = None
    ) -> T:
        """The same in the commit of the act itself; one that gives False found nothing to do."""
        noting = self.noting(tenant_id, actor, action, subject=subject, details=details)

        async def whole(tx: Transaction) -> T:
            made = await act(tx)
            if made is not False:
                await noting(tx, made)
            return made

        return await self.context.audit(tenant_id).transact(whole)

    def noting(
        self, tenant_id: str, actor: str, action: str, *, subject: str, details: Any = None
    ) -> AuditHook:
        """What adds the entry to a transaction; `details` may be a function of what came of the act."""
        audit = self.context.audit(tenant_id)

        async def note(tx: Transaction, made: Any) -> None:
            told = details(made) if callable(details) else details
            entry = AuditEntry(actor=actor, action=f"renewals.{action}", subject=subject, details=told)
            await audit.add(tx, entry)

        return note

    async def health(self) -> Health:
        """What the dispatcher of this process has done, and whether the source is read as it should be."""
        counts = self.dispatcher.status().counts
        facts = {"delivered": counts.delivered, "failed": counts.failed, "dlq": counts.dead}
        late = await self.refreshing.late() if self.refreshing.in_use else ""
        return Health("degraded", (late,), facts) if late else Health(facts=facts)

    async def attention(self, tenant_id: str) -> list[Notice]:
        """Dead letters, endpoints that nothing is sent to, and a source that can't be read."""
        store, found = self.store(tenant_id), list[Notice]()
        dead = await store.count(Query(DeadLetterRow).where("resolved", "==", False).order_by("-died_at"))
        if dead:
            said = f"{dead} dead letter{'s' if dead > 1 else ''} of renewals"
            found.append(Notice(tone="bad", text=said, path=f"{CONSOLE}/dead-letters", tenant_id=tenant_id))
        for status in ("paused", "disabled"):
            query = Query(RmsEndpoint).where("status", "==", status).order_by("-created_at").limit(10)
            found += [_stopped(one) for one in (await store.query(query)).docs]
        state = await self.source_state(tenant_id)
        if state is not None and state.error:
            said = f"the source of renewals could not be read: {state.error}"
            found.append(Notice(tone="warn", text=said, path=CONSOLE, tenant_id=tenant_id))
        return found


def _stopped(endpoint: RmsEndpoint) -> Notice:
    said = f"the RMS of {endpoint.id} is {endpoint.status}: {endpoint.reason or 'no reason given'}"
    path = f"{CONSOLE}/properties/{quote(endpoint.id, safe='')}"
    return Notice(tone="warn", text=said, path=path, tenant_id=endpoint.tenant_id)


def _headers(delivery: Delivery, endpoint: Endpoint) -> Sequence[tuple[str, str]]:
    return (("X-Event-Id", delivery.event_id),)
