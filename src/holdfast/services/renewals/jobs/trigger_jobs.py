"""Telling the RMS of a great many: a job that puts their events out batch by batch, under its claim.

    start ──► job (one a property at a time) ──► runner claims it ──► batch by batch:
                                                  read scores │ keep events and how far, in one commit
              a crash: the claim ends, another worker goes on after the last batch that was kept

An event is there or not, and each batch lands under the run's fencing number, so nobody is told of twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from holdfast.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    RetryLaterError,
    VersionConflictError,
)
from holdfast.kit.runs import Runs, Step, Workflow
from holdfast.model import schema_of
from holdfast.services.renewals.domain.scoring import Tier
from holdfast.services.renewals.jobs.risk_events import BATCH, Triggered, Triggers, of_run, summary_of
from holdfast.services.renewals.models import (
    TRIGGER_JOBS,
    RiskScore,
    RmsEndpoint,
    Summary,
    TriggerJob,
    TriggerState,
)
from holdfast.services.renewals.queries.finished_runs import count_of
from holdfast.services.renewals.queries.lookup import get_or_404, wait_until_done
from holdfast.store import Fence, QueryPage, Store, Transaction, Write, patch, put

WORKFLOW: Final = "trigger"
COLLECTION: Final = schema_of(TriggerJob).path.names[0]
RUN_LIMIT_S: Final = 3_600.0
TRIES: Final = 20
# What adds to the commit of something new that it was made.
AuditHook: TypeAlias = Callable[[Transaction, Any], Awaitable[None]]


def trigger_workflow(store: Store, *, batch: int = BATCH) -> Workflow:
    """What a trigger job does, so many residents at a time."""
    made = Workflow(WORKFLOW, limit_s=RUN_LIMIT_S)

    @made.step(limit_s=RUN_LIMIT_S)
    async def tell(step: Step) -> dict[str, int]:
        return await TriggerRun(store.tenant(step.run.tenant_id), step, batch=batch).run()

    return made


class TriggerRun:
    """One trigger job at work."""

    def __init__(self, store: Store, step: Step, *, batch: int = BATCH) -> None:
        assert isinstance(step.run, TriggerJob)
        self._store, self._job, self._batch = store, step.run, batch
        self._triggers, self._runs = Triggers(store), Runs(store, models=TRIGGER_JOBS)

    async def run(self) -> dict[str, int]:
        """Tell of whoever was not told of yet, until somebody cancels it."""
        job = self._job
        query = of_run(job.property_id, job.calculated_at, tiers=job.tiers).limit(self._batch)
        while not job.whole:
            await self._tell(await self._store.query(query.after(job.after)))
            await self._runs.raise_if_cancelled(job.id)
        return {"told": job.told}

    async def _tell(self, page: QueryPage[RiskScore]) -> None:
        """The events of a page, and how far the job has come, in one commit, while the job is still ours."""
        job, changes = self._job, dict[str, Any]()

        def progress(told: Sequence[Triggered]) -> Write:
            counts = Counter(job.counts)
            counts.update(one.status for one in told)
            changes.update(
                told=job.told + len(told), counts=dict(counts), after=page.cursor, whole=page.cursor is None
            )
            return patch(TriggerJob, job.id, changes=changes, expect=Fence(job.fence))

        await self._triggers.batch(page.docs, await self._endpoint(), beside=progress)
        for name, value in changes.items():
            setattr(job, name, value)

    async def _endpoint(self) -> RmsEndpoint:
        """Looked at for every batch: nothing is put out for one that was switched off meanwhile."""
        try:
            return await self._triggers.endpoint(self._job.property_id)
        except ConflictError as fault:
            # Invalid, so that the job ends here and says so: whoever mends it tells again.
            raise InvalidError(fault.message) from None


class TriggerJobs:
    """The trigger jobs of one portfolio.

    Example: `job = await TriggerJobs(store, workflow).start("property-7", run, tiers=["high"])`
    """

    def __init__(self, store: Store, workflow: Workflow) -> None:
        self._store, self._workflow = store, workflow
        self._runs = Runs(store, models=TRIGGER_JOBS)

    async def get(self, job_id: str) -> TriggerJob:
        return (await get_or_404(self._store, TriggerJob, job_id, what="trigger job")).doc

    async def latest(self, property_id: str) -> TriggerJob | None:
        """The one under way, or the last."""
        state = await self._store.get(TriggerState, property_id)
        job = None if state is None else await self._store.get(TriggerJob, state.doc.job_id)
        return None if job is None else job.doc

    async def ended(self, job_id: str, *, within_s: float) -> TriggerJob:
        """The job once it has ended, or as it is when the time is over."""
        return await wait_until_done(self._store, TriggerJob, job_id, what="trigger job", within_s=within_s)

    async def start(
        self,
        property_id: str,
        run: Summary,
        *,
        tiers: Sequence[Tier],
        by: str = "",
        noting: AuditHook | None = None,
    ) -> TriggerJob:
        """A job that tells of these tiers of a run, or the one that is at it already; `noting` is for a new
        one, in its commit.

        `ConflictError` while the property's RMS is told of others, or where it has none.
        """
        await Triggers(self._store).endpoint(property_id)

        async def act(tx: Transaction) -> TriggerJob:
            there = await self._under_way(property_id, tx)
            if there is not None:
                return _joined(there, run, tiers)
            job = self._new(property_id, run, tiers=tiers, by=by, tx=tx)
            if noting is not None:
                await noting(tx, job)
            return job

        try:
            return await self._store.transact(act, attempts=TRIES)
        except (AlreadyExistsError, VersionConflictError):
            raise RetryLaterError(f"too many tell the RMS of {property_id!r} at this moment") from None

    async def _under_way(self, property_id: str, tx: Transaction) -> TriggerJob | None:
        state = await tx.get(TriggerState, property_id)
        last = None if state is None else await tx.get(TriggerJob, state.doc.job_id)
        return None if last is None or last.doc.completed_at is not None else last.doc

    def _new(
        self, property_id: str, run: Summary, *, tiers: Sequence[Tier], by: str, tx: Transaction
    ) -> TriggerJob:
        job, writes = self._runs.writes_start(self._workflow, fields={
            "property_id": property_id, "calculated_at": run.calculated_at, "tiers": list(tiers),
            "requested_by": by, "residents": count_of(run, tiers),
        })  # fmt: skip
        assert isinstance(job, TriggerJob)
        marked = TriggerState(property_id=property_id, tenant_id=job.tenant_id, job_id=job.id)
        tx.write(*writes, put(marked))
        return job


def _joined(job: TriggerJob, run: Summary, tiers: Sequence[Tier]) -> TriggerJob:
    """The job under way where it does what is asked for."""
    if (job.calculated_at, set(job.tiers)) == (run.calculated_at, set(tiers)):
        return job
    earlier = "" if job.calculated_at == run.calculated_at else " by an earlier run"
    by = f", asked for by {job.requested_by}" if job.requested_by else ""
    raise ConflictError(
        f"the RMS of {job.property_id!r} is being told of {job.residents:,} residents"
        f" ({' and '.join(job.tiers)} risk{earlier}, {job.id}{by}); wait until that is done, or end it with"
        f" `holdfast runs cancel {job.id} --collection {COLLECTION}`"
    )


def started_details(job: TriggerJob) -> dict[str, Any]:
    """What the audit trail says of a new one."""
    return {"job": job.id, "residents": job.residents}


def progress_of(job: TriggerJob) -> str:
    """How far a job is, or what it came to, for people.

    Example: `progress_of(job)` gives `The RMS is being told of 30,000 residents; 12,000 are done.`
    """
    if job.status == "completed":
        return summary_of(job.counts)
    if job.status in ("pending", "running"):
        return f"The RMS is being told of {job.residents:,} residents; {job.told:,} are done."
    why = job.error or "no reason was given"
    return f"Of {job.residents:,} residents the RMS was told of {job.told:,}, then this {job.status}: {why}."
