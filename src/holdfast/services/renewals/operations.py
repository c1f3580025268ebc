"""What people and programs do to a portfolio; each act and its audit event are one commit.

Routes, commands and pages parse, call these and render. Where an act takes several commits, each of them
carries an event: every batch of triggered events, the beginning and the end of an import.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any, Final, Literal

import msgspec

from holdfast.errors import ConflictError, InvalidError, NotFoundError
from holdfast.kit.outbox import Deliveries, Dispatcher, Report, Selection
from holdfast.operation import Operator, operation
from holdfast.service import SubprocessPool
from holdfast.services.renewals.domain.rules import RulesRequest, merge_rules
from holdfast.services.renewals.domain.scoring import FLAGGED, Tier
from holdfast.services.renewals.ingest.importer import Import, Tell
from holdfast.services.renewals.ingest.refresh import SourceRefresh
from holdfast.services.renewals.ingest.reports import TableReport
from holdfast.services.renewals.ingest.settings import RenewalsSettings
from holdfast.services.renewals.ingest.sources import TableSource
from holdfast.services.renewals.jobs.calculation import workflow
from holdfast.services.renewals.jobs.calculation_jobs import CalculationJobs
from holdfast.services.renewals.jobs.risk_events import (
    BATCH,
    RiskEvents,
    TriggerResult,
    counts_of,
    event_id_of,
)
from holdfast.services.renewals.jobs.trigger_jobs import TriggerJobs, trigger_workflow
from holdfast.services.renewals.jobs.withdrawal import Withdrawal, Withdrawals
from holdfast.services.renewals.models import (
    OUTBOX_MODELS,
    CalculationJob,
    DeadLetterRow,
    Outcome,
    Property,
    PropertyRules,
    Resident,
    RiskScore,
    SourceState,
    Summary,
    TriggerJob,
)
from holdfast.services.renewals.queries.deliveries import RmsDeliveries
from holdfast.services.renewals.queries.finished_runs import count_of
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.services.renewals.queries.outcomes import Outcomes
from holdfast.services.renewals.queries.portfolio import Portfolio
from holdfast.services.renewals.queries.rules import build_rules
from holdfast.services.renewals.queries.scores import scores_of_run
from holdfast.store import Store, Transaction, put

AREA: Final = "renewals"
# Tiers with more residents than this are sent by a job.
AT_ONCE_MAX: Final = 10_000
REPLAY_MAX: Final = 1_000


class Renewals:
    """The service's operations, and the reads of one portfolio.

    Example: `job = await renewals.calculate(by, "property-7")`
    """

    def __init__(
        self,
        store: Store,
        settings: RenewalsSettings = RenewalsSettings(),  # noqa: B008
        *,
        subprocess_pool: SubprocessPool | None = None,
        dispatcher: Dispatcher | None = None,
    ) -> None:
        self._store, self.clock, self._dispatcher = store, store.clock, dispatcher
        self.workflow = workflow(store, subprocess_pool=subprocess_pool)
        self.trigger_workflow = trigger_workflow(store)
        self.refresh = SourceRefresh(store, settings)

    def store(self, tenant_id: str) -> Store:
        return self._store.tenant(tenant_id)

    def privileged_store(self) -> Store:
        return self._store.privileged()

    def portfolio(self, tenant_id: str) -> Portfolio:
        return Portfolio(self.store(tenant_id))

    def jobs(self, tenant_id: str) -> CalculationJobs:
        return CalculationJobs(self.store(tenant_id), self.workflow)

    def trigger_jobs(self, tenant_id: str) -> TriggerJobs:
        return TriggerJobs(self.store(tenant_id), self.trigger_workflow)

    def withdrawals(self, tenant_id: str) -> Withdrawals:
        return Withdrawals(self.store(tenant_id))

    def deliveries(self, tenant_id: str) -> RmsDeliveries:
        return RmsDeliveries(self.store(tenant_id))

    def outbox(self, tenant_id: str) -> Deliveries:
        return Deliveries(self.store(tenant_id), models=OUTBOX_MODELS)

    def outcomes(self, tenant_id: str) -> Outcomes:
        return Outcomes(self.store(tenant_id))

    def _events(self, tenant_id: str) -> RiskEvents:
        return RiskEvents(self.store(tenant_id), local_dispatcher=self._dispatcher)

    async def source_state(self, tenant_id: str) -> SourceState | None:
        """Where a portfolio's data comes from and how old it is; None before the first import."""
        stored = await self.store(tenant_id).get(SourceState, tenant_id)
        return None if stored is None else stored.doc

    @operation(
        "renewals.calculation_started", area=AREA, verb="calculate", needs="developer", subject="property_id"
    )
    async def calculate(
        self, by: Operator, property_id: str, *, as_of: date | None = None, key: str | None = None
    ) -> CalculationJob:
        """Start a calculation of a property, or join the one under way; the same `key` gives the same job."""

        async def record(tx: Transaction, job: CalculationJob) -> None:
            await by.record(tx, details={"job": job.id, "asOfDate": job.as_of_date.isoformat()})

        jobs = self.jobs(by.tenant_id)
        return await jobs.start(property_id, as_of=as_of, by=by.actor, key=key, record=record)

    @operation("renewals.run_withdrawn", area=AREA, verb="withdraw", needs="developer", subject="run_id")
    async def withdraw(self, by: Operator, property_id: str, run_id: str, *, reason: str = "") -> Withdrawal:
        """Withdraw the latest run: the one before it is the latest again; what was sent stays on record."""
        withdrawals = self.withdrawals(by.tenant_id)
        why = f"withdrawn by {by.actor}" + (f": {reason}" if reason else "")
        done = await by.commit(
            lambda tx: withdrawals.add(tx, property_id, run_id, why=why),
            details=lambda done: {
                "property": property_id, "asOfDate": done.job.as_of_date.isoformat(), "reason": reason,
                "latest": None if done.latest is None else done.latest.job_id,
            },
        )  # fmt: skip
        return msgspec.structs.replace(done, events=await withdrawals.count_events(done.job))

    @operation("renewals.triggered", area=AREA, verb="trigger", needs="developer", subject="resident_id")
    async def trigger(self, by: Operator, property_id: str, resident_id: str) -> TriggerResult:
        """Send one resident of the latest run to the RMS; ConflictError for one who is not flagged."""
        portfolio = self.portfolio(by.tenant_id)
        run = await portfolio.require_run(property_id)
        await get_or_404(portfolio.store, Resident, resident_id, what="resident")
        scores = await portfolio.scores_of([resident_id], run)
        if not scores or scores[0].property_id != property_id:
            raise NotFoundError(f"no score of resident {resident_id!r} in the latest run", "resident")
        if scores[0].risk_tier not in FLAGGED:
            raise ConflictError(f"resident {resident_id!r} is not flagged: the latest run says low risk")
        events = self._events(by.tenant_id)
        (result,) = await by.commit(
            lambda tx: events.add(tx, scores, calculation_id=run.job_id), subject=event_id_of(scores[0]),
            details=lambda results: {"status": results[0].status},
        )  # fmt: skip
        return result

    @operation("renewals.triggered", area=AREA, verb="trigger", needs="developer", subject="property_id")
    async def trigger_residents(
        self, by: Operator, property_id: str, residents: Sequence[str]
    ) -> list[TriggerResult]:
        """Send those of the residents named who are flagged in the latest run."""
        portfolio = self.portfolio(by.tenant_id)
        run = await portfolio.require_run(property_id)
        return await self._send(by, run, await portfolio.flagged(residents, run, property_id))

    @operation("renewals.triggered", area=AREA, verb="trigger", needs="developer", subject="property_id")
    async def trigger_tiers(
        self, by: Operator, property_id: str, *, tiers: Sequence[Tier] = FLAGGED
    ) -> list[TriggerResult] | TriggerJob:
        """Send whole tiers of the latest run: at once, or where they are many by a job."""
        if not set(tiers) <= set(FLAGGED):
            raise InvalidError("only flagged residents are sent: high or medium", "tier")
        run = await self.portfolio(by.tenant_id).require_run(property_id)
        if count_of(run, tiers) <= AT_ONCE_MAX:
            store = self.store(by.tenant_id)
            return await self._send(
                by, run, await scores_of_run(store, property_id, run.calculated_at, tiers=tiers)
            )

        async def record(tx: Transaction, job: TriggerJob) -> None:
            details = {"job": job.id, "residents": job.residents}
            await by.record(tx, action="renewals.trigger_started", details=details)

        return await self.trigger_jobs(by.tenant_id).start(
            property_id, run, tiers=tiers, by=by.actor, record=record
        )

    async def _send(self, by: Operator, run: Summary, scores: Sequence[RiskScore]) -> list[TriggerResult]:
        """Commit batch by batch; the audit event of each says what became of its residents."""
        events, results = self._events(by.tenant_id), list[TriggerResult]()
        for start in range(0, len(scores), BATCH):
            batch = scores[start : start + BATCH]
            results += await by.commit(
                lambda tx, batch=batch: events.add(tx, batch, calculation_id=run.job_id),  # type: ignore[misc]
                details=counts_of,
            )
        return results

    @operation("renewals.rules_set", area=AREA, verb="configure", needs="admin", subject="property_id")
    async def set_rules(self, by: Operator, property_id: str, rules: RulesRequest) -> PropertyRules:
        """Give a property these rules for the runs to come; stored scores and tiers stay as they are."""
        return await self._change_rules(by, property_id, lambda stored: rules)

    @operation("renewals.rules_set", area=AREA, verb="configure", needs="admin", subject="property_id")
    async def change_rules(self, by: Operator, property_id: str, changes: Mapping[str, Any]) -> PropertyRules:
        """Change some of a property's rules by name; the others stay."""
        return await self._change_rules(by, property_id, lambda stored: merge_rules(stored, changes))

    async def _change_rules(
        self, by: Operator, property_id: str, change: Callable[[RulesRequest], RulesRequest]
    ) -> PropertyRules:
        store = self.store(by.tenant_id)

        async def act(tx: Transaction) -> PropertyRules:
            await get_or_404(store, Property, property_id, what="property")
            stored = await tx.get(PropertyRules, property_id)
            request = change(RulesRequest() if stored is None else stored.doc.request())
            rules = build_rules(store, property_id, request)
            tx.write(put(rules))
            return rules

        return await by.commit(act, details=lambda rules: msgspec.to_builtins(rules.request()))

    @operation("renewals.outcome", area=AREA, verb="record", needs="developer", subject="lease_id")
    async def record_outcome(
        self,
        by: Operator,
        resident_id: str,
        lease_id: str,
        *,
        outcome: Literal["renewed", "left"],
        decided_on: date,
    ) -> Outcome:
        """Record whether a lease was renewed or its resident left; recording it again corrects it."""
        outcomes = self.outcomes(by.tenant_id)

        async def act(tx: Transaction) -> Outcome:
            result = await outcomes.build(resident_id, lease_id, outcome=outcome, decided_on=decided_on)
            tx.write(put(result))
            return result

        return await by.commit(act, details={"outcome": outcome})

    @operation("dead_letter.replayed", area=AREA, verb="replay", needs="developer", subject="delivery_id")
    async def replay_dead_letter(self, by: Operator, delivery_id: str) -> bool:
        """Send a dead letter again; False where that was done since."""
        await get_or_404(self.store(by.tenant_id), DeadLetterRow, delivery_id, what="dead letter")
        outbox = self.outbox(by.tenant_id)
        return await by.commit(lambda tx: outbox.replay_one(delivery_id, tx, only=["dead"]))

    @operation("dead_letters.replayed", area=AREA, verb="replay", needs="developer", subject="property_id")
    async def replay_dead_letters(
        self, by: Operator, *, property_id: str | None = None, dry_run: bool = True
    ) -> Report:
        """Send the dead letters of a property, or of all, again, at most a thousand."""
        if property_id is not None:
            await self.portfolio(by.tenant_id).property(property_id)

        async def record(tx: Transaction, count: int) -> None:
            await by.record(tx, details={"changed": count}, subject=property_id or "")

        selection = Selection(statuses=["dead"], endpoint_id=property_id)
        return await self.outbox(by.tenant_id).replay(
            selection, dry_run=dry_run, limit=REPLAY_MAX, also=record
        )

    @operation("renewals.imported", area=AREA, verb="import", needs="admin")
    async def import_tables(
        self,
        by: Operator,
        source: TableSource,
        *,
        replace: bool = False,
        on_progress: Tell = lambda report: None,
    ) -> list[TableReport]:
        """Import the platform's tables; `renewals.import_started` is on record before the first row lands."""

        async def record(tx: Transaction, reports: Sequence[TableReport] | None) -> None:
            if reports is None:
                await by.record(tx, action="renewals.import_started", subject=source.name)
                return
            counts = {one.table: one.created + one.updated + one.removed for one in reports}
            await by.record(tx, subject=source.name, details=counts)

        return await Import(self.store(by.tenant_id), source, replace=replace, record=record).run(on_progress)
