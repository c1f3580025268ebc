"""Jobs that send whole tiers to the RMS: events are created batch by batch, under the job's claim.

    start ──► job (one a property at a time) ──► runner claims it ──► batch by batch:
                                                  read scores │ commit events and progress together
              a crash: the claim ends, another worker resumes after the last committed batch

An event exists or not, and each batch lands under the job's fencing number, so nobody is sent twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from holdfast.errors import (
    AlreadyExistsError,
    ConflictError,
    InvalidError,
    RetryLaterError,
    VersionConflictError,
)
from holdfast.kit.audit.trail import ATTEMPTS
from holdfast.kit.runs import Runs, Step, Workflow
from holdfast.model import schema_of
from holdfast.plural import plural
from holdfast.services.renewals.domain.scoring import Tier
from holdfast.services.renewals.jobs.risk_events import (
    BATCH,
    Record,
    RiskEvents,
    TriggerResult,
    describe_counts,
)
from holdfast.services.renewals.models import TRIGGER_JOBS, RiskScore, Summary, TriggerJob, TriggerState
from holdfast.services.renewals.queries.finished_runs import count_of
from holdfast.services.renewals.queries.lookup import get_or_404, wait_until_done
from holdfast.services.renewals.queries.scores import run_scores
from holdfast.store import Fence, QueryPage, Store, Transaction, patch, put

WORKFLOW: Final = "trigger"
COLLECTION: Final = schema_of(TriggerJob).path.names[0]
RUN_LIMIT_S: Final = 3_600.0
# How many jobs of the kind one process works on at the same time.
CONCURRENCY: Final = 4


def trigger_workflow(store: Store, *, batch: int = BATCH) -> Workflow:
    """The workflow of trigger jobs, `batch` residents a commit."""
    made = Workflow(WORKFLOW, limit_s=RUN_LIMIT_S, concurrency=CONCURRENCY)

    @made.step(limit_s=RUN_LIMIT_S)
    async def send(step: Step) -> dict[str, int]:
        return await TriggerRun(store.tenant(step.run.tenant_id), step, batch=batch).run()

    return made


class TriggerRun:
    def __init__(self, store: Store, step: Step, *, batch: int = BATCH) -> None:
        assert isinstance(step.run, TriggerJob)
        self._store, self._job, self._batch = store, step.run, batch
        self._events, self._runs = RiskEvents(store), Runs(store, models=TRIGGER_JOBS)

    async def run(self) -> dict[str, int]:
        """Send whoever was not sent yet, until somebody cancels the job."""
        job = self._job
        query = run_scores(job.property_id, job.calculated_at, tiers=job.tiers).limit(self._batch)
        while not job.whole:
            await self._send(await self._store.query(query.after(job.after)))
            await self._runs.raise_if_cancelled(job.id)
        return {"told": job.told}

    async def _send(self, page: QueryPage[RiskScore]) -> None:
        """Commit the events of a page with the progress of the job, while the job is still ours."""
        job = self._job

        async def act(tx: Transaction) -> dict[str, Any]:
            results = await self._add(tx, page.docs)
            counts = Counter(job.counts)
            counts.update(one.status for one in results)
            changes: dict[str, Any] = {
                "told": job.told + len(results), "counts": dict(counts), "after": page.cursor,
                "whole": page.cursor is None,
            }  # fmt: skip
            tx.write(patch(TriggerJob, job.id, changes=changes, expect=Fence(job.fence)))
            return changes

        for name, value in (await self._store.transact(act, attempts=ATTEMPTS)).items():
            setattr(job, name, value)

    async def _add(self, tx: Transaction, scores: Sequence[RiskScore]) -> list[TriggerResult]:
        try:
            return await self._events.add(tx, scores, calculation_id=self._job.calculation_id)
        except ConflictError as fault:
            # Invalid, so that the job ends here with the reason instead of being retried.
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
        """The job under way, or the last one."""
        state = await self._store.get(TriggerState, property_id)
        job = None if state is None else await self._store.get(TriggerJob, state.doc.job_id)
        return None if job is None else job.doc

    async def wait(self, job_id: str, *, within_s: float) -> TriggerJob:
        """The job once it has ended, or as it is after `within_s`."""
        return await wait_until_done(self._store, TriggerJob, job_id, what="trigger job", within_s=within_s)

    async def start(
        self,
        property_id: str,
        run: Summary,
        *,
        tiers: Sequence[Tier],
        by: str = "",
        record: Record | None = None,
    ) -> TriggerJob:
        """Start a job for these tiers of a run, or join the one under way; `record` adds to the commit of a
        new one.

        ConflictError while another job of the property is under way, or where it has no usable endpoint.
        """
        await RiskEvents(self._store).require_endpoint(property_id)

        async def act(tx: Transaction) -> TriggerJob:
            state = await tx.get(TriggerState, property_id)
            last = None if state is None else await tx.get(TriggerJob, state.doc.job_id)
            if last is not None and last.doc.completed_at is None:
                return _join(last.doc, run, tiers)
            job = self._create(tx, property_id, run, tiers=tiers, by=by)
            if record is not None:
                await record(tx, job)
            return job

        try:
            return await self._store.transact(act, attempts=ATTEMPTS)
        except (AlreadyExistsError, VersionConflictError):
            raise RetryLaterError(f"concurrent triggers for property {property_id!r}; retry") from None

    def _create(
        self, tx: Transaction, property_id: str, run: Summary, *, tiers: Sequence[Tier], by: str
    ) -> TriggerJob:
        job, writes = self._runs.writes_start(self._workflow, fields={
            "property_id": property_id, "calculated_at": run.calculated_at, "calculation_id": run.job_id,
            "tiers": list(tiers), "requested_by": by, "residents": count_of(run, tiers),
        })  # fmt: skip
        assert isinstance(job, TriggerJob)
        tx.write(*writes, put(TriggerState(property_id=property_id, tenant_id=job.tenant_id, job_id=job.id)))
        return job


def _join(job: TriggerJob, run: Summary, tiers: Sequence[Tier]) -> TriggerJob:
    """The job under way where it does what is asked for."""
    if (job.calculated_at, set(job.tiers)) == (run.calculated_at, set(tiers)):
        return job
    earlier = "" if job.calculated_at == run.calculated_at else " of an earlier run"
    by = f", requested by {job.requested_by}" if job.requested_by else ""
    raise ConflictError(
        f"a job is sending {plural(job.residents, 'resident')} of {job.property_id!r} to the RMS"
        f" ({' and '.join(job.tiers)} risk{earlier}, {job.id}{by}); wait until it is done, or cancel it with"
        f" `holdfast runs cancel {job.id} --collection {COLLECTION}`"
    )


def describe_progress(job: TriggerJob) -> str:
    """Describe how far a job is, or what it came to.

    Example: `describe_progress(job)` gives `Sending 30,000 residents to the RMS; 12,000 are done.`
    """
    if job.status == "completed":
        return describe_counts(job.counts)
    if job.status in ("pending", "running"):
        return f"Sending {plural(job.residents, 'resident')} to the RMS; {job.told:,} done."
    why = job.error or "no reason was given"
    sent = f"{job.told:,} of {plural(job.residents, 'resident')}"
    return f"{sent} were sent to the RMS, then this {job.status}: {why}."
