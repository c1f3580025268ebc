"""Acts on runs: start, approve, reject, cancel; and the reads of one tenant's runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from holdfast.errors import ConflictError, NotFoundError
from holdfast.kit.metering import MeterFactory
from holdfast.kit.runs import Join, Runs
from holdfast.kit.runs.models import RunStatus
from holdfast.operation import Operator
from holdfast.projection import project
from holdfast.services.gwi.models.records import METER, AuditRecord
from holdfast.services.gwi.models.runs import (
    RUNS,
    AgentRun,
    AgentStep,
    ApprovalStatus,
    RunApproval,
    RunLog,
    RunTotals,
    RunType,
)
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.run_starts import (
    AT_ONCE,
    RunRequest,
    RunStarts,
    receipt_of,
    started_details,
    tenant_in,
)
from holdfast.store import Query, QueryPage, Store, Transaction, create

AREA: Final = "runs"
CANCELLED: Final = "cancelled by a member"
REJECTED: Final = "the proposed changes were rejected"


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs to list."""

    status: RunStatus | None = None
    type: RunType | None = None
    repo_id: str | None = None
    approval_status: ApprovalStatus | None = None


class RunStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A tenant's runs by outcome; `active` are at work: one that waits for approval is not."""

    started: int
    active: int
    completed: int
    failed: int
    cancelled: int
    duration_ms_mean: int | None


class RunOperations:
    """The operations on a tenant's runs, and their reads.

    Example: `run = await operations.runs.start_run(by, RunRequest(type="triage", repo_id=..., trigger=...))`
    """

    def __init__(
        self, store: Store, starts: RunStarts, *, meters: MeterFactory, joins: Sequence[Join]
    ) -> None:
        self._store, self._meters, self._joins = store, meters, tuple(joins)
        self.starts, self.clock = starts, store.clock

    @gwi_operation("run_started", area=AREA, verb="start", needs="developer")
    async def start_run(self, by: Operator, request: RunRequest) -> AgentRun:
        """Start a run, within the limits of the tenant's plan."""
        return await by.commit(
            lambda tx: self.starts.start(tx, by.tenant_id, request),
            subject=lambda run: run.id, details=started_details, fields=receipt_of,
        )  # fmt: skip

    @gwi_operation("approval_granted", area=AREA, verb="approve", needs="admin", subject="run_id")
    async def approve(self, by: Operator, run_id: str, *, reason: str = "") -> AgentRun:
        """Let a run go on with the changes that it proposes; LimitReachedError where no place is free."""

        async def act(tx: Transaction) -> AgentRun:
            run = await self._decide(tx, by, run_id, decision="approved", reason=reason)
            await self.starts.take_place(tx, await tenant_in(tx, by.tenant_id))
            fields = {"approval_status": "approved", "approval_reason": reason or None}
            await self._runs(by.tenant_id).wake(run_id, tx, fields=fields)
            return msgspec.structs.replace(run, **fields)

        return await by.commit(
            act, details={"reason": reason}, fields=lambda run: receipt_of(run, evidence=reason)
        )

    @gwi_operation("approval_rejected", area=AREA, verb="reject", needs="admin", subject="run_id")
    async def reject(self, by: Operator, run_id: str, *, reason: str = "") -> AgentRun:
        """Cancel a run instead of making the changes that it proposes."""

        async def act(tx: Transaction) -> AgentRun:
            run = await self._decide(tx, by, run_id, decision="rejected", reason=reason)
            fields = {"approval_status": "rejected", "approval_reason": reason or None}
            status = await self._runs(by.tenant_id).cancel(
                run_id, tx, reason=reason or REJECTED, fields=fields
            )
            return msgspec.structs.replace(run, status=status, **fields)

        return await by.commit(
            act, details={"reason": reason}, fields=lambda run: receipt_of(run, evidence=reason)
        )

    async def _decide(
        self, tx: Transaction, by: Operator, run_id: str, *, decision: Any, reason: str
    ) -> AgentRun:
        run = await self._run_in(tx, run_id)
        if run.approval_status != "pending" or run.completed_at is not None:
            raise ConflictError(
                f"run {run_id} waits for no approval: it is {run.status}, its approval {run.approval_status}"
            )
        tx.write(create(RunApproval(
            run_id=run_id, tenant_id=by.tenant_id, decision=decision, decided_by=by.actor,
            decided_at=self._store.clock.now(), reason=reason or None,
            proposed_changes_snapshot=run.proposed_changes,
        )))  # fmt: skip
        return run

    @gwi_operation("run_cancel_requested", area=AREA, verb="cancel", needs="developer", subject="run_id")
    async def cancel(self, by: Operator, run_id: str, *, reason: str = CANCELLED) -> AgentRun:
        """Let no further step begin; a run that no worker holds ends at once."""

        async def act(tx: Transaction) -> AgentRun:
            run = await self._run_in(tx, run_id)
            if run.completed_at is not None:
                raise ConflictError(f"run {run_id} has ended: it is {run.status}")
            status = await self._runs(by.tenant_id).cancel(run_id, tx, reason=reason)
            return msgspec.structs.replace(run, status=status, cancel_reason=reason)

        return await by.commit(
            act, details={"reason": reason}, fields=lambda run: receipt_of(run, evidence=reason)
        )

    async def _run_in(self, tx: Transaction, run_id: str) -> AgentRun:
        stored = await tx.get(AgentRun, run_id)
        if stored is None:
            raise _unknown(run_id)
        return stored.doc

    def _runs(self, tenant_id: str) -> Runs:
        return Runs(self._store.tenant(tenant_id), models=RUNS, joins=self._joins)

    # -- reads ----------------------------------------------------------------------------------

    async def get(self, tenant_id: str, run_id: str) -> AgentRun:
        """One run with its steps, or NotFoundError."""
        stored = await self._store.tenant(tenant_id).get(AgentRun, run_id)
        if stored is None:
            raise _unknown(run_id)
        return stored.doc

    async def page(
        self, tenant_id: str, wanted: RunFilter | None = None, *, limit: int = 50, cursor: str | None = None
    ) -> QueryPage[AgentRun]:
        """Runs, newest first."""
        query = Query(AgentRun).order_by("-created_at").limit(limit).after(cursor)
        for field, value in msgspec.structs.asdict(wanted or RunFilter()).items():
            if value is not None:
                query = query.where(field, "==", value)
        return await self._store.tenant(tenant_id).query(query)

    async def steps(self, tenant_id: str, run_id: str) -> Sequence[AgentStep]:
        """The steps of a run with their whole inputs and outputs."""
        await self.get(tenant_id, run_id)
        query = Query(AgentStep).under(run_id).order_by("number")
        return (await self._store.tenant(tenant_id).query(query)).docs

    async def logs(self, tenant_id: str, run_id: str, *, limit: int = 200) -> Sequence[RunLog]:
        """What a run wrote about itself, in order."""
        query = Query(RunLog).under(run_id).order_by("at").limit(limit)
        return (await self._store.tenant(tenant_id).query(query)).docs

    async def approvals(self, tenant_id: str, run_id: str) -> Sequence[RunApproval]:
        """The decisions about a run, newest first."""
        query = Query(RunApproval).where("run_id", "==", run_id).order_by("-decided_at")
        return (await self._store.tenant(tenant_id).query(query)).docs

    async def events(
        self, tenant_id: str, run_id: str, *, limit: int = 100, cursor: str | None = None
    ) -> QueryPage[AuditRecord]:
        """The audit events of a run, newest first."""
        query = Query(AuditRecord).where("run_id", "==", run_id).order_by("-sequence").limit(limit)
        return await self._store.tenant(tenant_id).query(query.after(cursor))

    async def stats(self, tenant_id: str) -> RunStats:
        """The tenant's runs by outcome; takes two reads however many there are."""
        stored = await self._store.tenant(tenant_id).get(RunTotals, tenant_id)
        active = await self._meters(tenant_id, models=METER).used(AT_ONCE)
        totals = stored.doc if stored else RunTotals(tenant_id=tenant_id, updated_at=self._store.clock.now())
        ended = totals.completed + totals.failed + totals.cancelled
        mean = totals.duration_ms // ended if ended else None
        return project(totals, RunStats, active=active, duration_ms_mean=mean)


def _unknown(run_id: str) -> NotFoundError:
    return NotFoundError(f"no run {run_id!r}")
