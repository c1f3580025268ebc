"""Calculation jobs from the outside: start one, wait for it, read its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import date, datetime, timedelta
from typing import Any, Final

import msgspec

from holdfast.errors import (
    AlreadyExistsError,
    InvalidError,
    JobFailedError,
    KeyReusedError,
    LeaseLostError,
    NotFoundError,
    OutcomeUnknownError,
    RetryLaterError,
    VersionConflictError,
)
from holdfast.kit.audit.trail import ATTEMPTS
from holdfast.kit.idempotency import Idempotency, StoredResponse, Ticket
from holdfast.kit.runs import Runs, Workflow
from holdfast.projection import project
from holdfast.services.renewals.domain.dates import check_day, local_date, zone_named
from holdfast.services.renewals.domain.scoring import FLAGGED, Tier
from holdfast.services.renewals.jobs.risk_events import Record
from holdfast.services.renewals.models import (
    JOBS,
    CalculationJob,
    Property,
    PropertyRules,
    PropertyState,
    RiskScore,
)
from holdfast.services.renewals.queries.lookup import get_or_404, wait_until_done
from holdfast.services.renewals.queries.scores import scores_of_run
from holdfast.store import Store, Transaction, put

KEY_MAX: Final = 200
KEY_WAIT_S: Final = 10.0
# Runs of a property never share a time, nor stand in another order, whatever becomes of the clock.
TICK: Final = timedelta(microseconds=1)


class Flag(msgspec.Struct, frozen=True, rename="camel"):
    """A resident who is likely not to renew."""

    resident_id: str
    name: str
    unit_id: str
    risk_score: int
    risk_tier: Tier
    days_to_expiry: int | None
    notice_given: bool
    signals: dict[str, int | bool | None]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A finished run, with everybody it flags."""

    job_id: str
    property_id: str
    as_of_date: date
    calculated_at: Any
    total_residents: int
    skipped: int
    flagged_count: int
    risk_tiers: dict[Tier, int]
    flags: list[Flag]


def flag_of(score: RiskScore) -> Flag:
    values = {name: signal.value for name, signal in score.signals.items()}
    return Flag(
        score.resident_id, score.name, score.unit_id, score.risk_score, score.risk_tier,
        score.days_to_expiry, score.notice_given, values,
    )  # fmt: skip


def failure_of(job: CalculationJob) -> JobFailedError:
    """The error for callers who wait for a job that ended without a result."""
    verb, why = ("failed" if job.status == "failed" else "was cancelled"), job.error or "no reason was given"
    return JobFailedError(
        f"calculation {job.id} {verb}: {why}; correct that and calculate again",
        details={"jobId": job.id, "status": job.status, "reason": why},
    )


class CalculationJobs:
    """The calculation jobs of one portfolio.

    Example: `job = await CalculationJobs(store.tenant("-"), workflow).start("property-7", by="ada")`
    """

    def __init__(self, store: Store, workflow: Workflow) -> None:
        self._store, self._workflow = store, workflow
        self._runs = Runs(store, models=JOBS)
        self._idempotency = Idempotency(store, owner="renewals")

    async def get(self, job_id: str) -> CalculationJob:
        return (await get_or_404(self._store, CalculationJob, job_id, what="job")).doc

    async def of_property(self, property_id: str, job_id: str) -> CalculationJob:
        """One of a property's jobs, in whatever state; NotFoundError for another property's."""
        job = await self.get(job_id)
        if job.property_id != property_id:
            raise NotFoundError(f"no run {job_id!r} of property {property_id!r}", "run")
        return job

    async def start(
        self,
        property_id: str,
        *,
        as_of: date | None = None,
        by: str = "",
        key: str | None = None,
        record: Record | None = None,
    ) -> CalculationJob:
        """Start a job, or join the one under way: a property is calculated by one at a time.

        The same `key` gives the same job, also when that has ended. `record` adds to the commit of a new one.
        """
        if as_of is not None:
            check_day(as_of, "asOfDate")

        async def act(tx: Transaction) -> CalculationJob:
            job, new = await self._begin(tx, property_id, as_of, by=by)
            if new and record is not None:
                await record(tx, job)
            return job

        try:
            if key is None:
                return await self._store.transact(act, attempts=ATTEMPTS)
            return await self._start_once(act, key, {"propertyId": property_id, "asOfDate": as_of})
        except (AlreadyExistsError, VersionConflictError):
            raise RetryLaterError(f"concurrent calculations of {property_id!r} conflicted; retry") from None

    async def _start_once(
        self, act: Callable[[Transaction], Awaitable[CalculationJob]], key: str, body: Any
    ) -> CalculationJob:
        """Start under an idempotency key; its record is completed in the commit of the job."""
        while True:
            try:
                begun = await self._idempotency.begin(f"calculate:{key}", body, wait_s=KEY_WAIT_S)
            except KeyReusedError:
                raise KeyReusedError(
                    f"the key {key!r} was used for another property or day; take a new one", "Idempotency-Key"
                ) from None
            if isinstance(begun, StoredResponse):
                return await self.get(begun.body["jobId"])
            ticket = begun

            async def complete(tx: Transaction, ticket: Ticket = ticket) -> CalculationJob:
                job = await act(tx)
                response = StoredResponse(status=202, body={"jobId": job.id})
                tx.write(*self._idempotency.writes_complete(ticket, response))
                return job

            try:
                return await self._store.transact(complete, attempts=ATTEMPTS)
            except (LeaseLostError, OutcomeUnknownError):
                # Another caller has the key now, or the commit may have landed: the record says which.
                await self._idempotency.release(ticket)
            except BaseException:
                await self._idempotency.release(ticket)
                raise

    async def _begin(
        self, tx: Transaction, property_id: str, as_of: date | None, *, by: str
    ) -> tuple[CalculationJob, bool]:
        """The job under way, or a new one whose writes are in the transaction."""
        property = (await get_or_404(self._store, Property, property_id, what="property")).doc
        state = await tx.get(PropertyState, property_id)
        last = None if state is None else await self._store.get(CalculationJob, state.doc.job_id)
        if last is not None and last.doc.completed_at is None:
            return last.doc, False
        now, rules = self._store.clock.now(), await self._store.get(PropertyRules, property_id)
        fields: dict[str, Any] = {
            "property_id": property_id, "requested_by": by,
            "calculated_at": now if last is None else max(now, last.doc.calculated_at + TICK),
            "as_of_date": _day(as_of, now, zone=property.time_zone),
        }  # fmt: skip
        if rules is not None:
            fields |= {"rules": rules.doc.rules(), "send": rules.doc.send}
        job, writes = self._runs.writes_start(self._workflow, fields=fields)
        assert isinstance(job, CalculationJob)
        latest = None if state is None else state.doc.latest
        new = PropertyState(property_id=property_id, tenant_id=job.tenant_id, job_id=job.id, latest=latest)
        tx.write(*writes, put(new))
        return job, True

    async def wait(self, job_id: str, *, within_s: float) -> CalculationJob:
        """The job once it has ended, or as it is after `within_s`."""
        return await wait_until_done(self._store, CalculationJob, job_id, what="job", within_s=within_s)

    async def wait_for_result(self, job_id: str, *, within_s: float) -> CalculationJob:
        """Like `wait`; JobFailedError where it ended without a result."""
        job = await self.wait(job_id, within_s=within_s)
        if job.status in ("failed", "cancelled"):
            raise failure_of(job)
        return job

    async def summary(self, job: CalculationJob) -> RunSummary:
        """The result of a finished job, the most at risk first."""
        scores = await scores_of_run(self._store, job.property_id, job.calculated_at, tiers=FLAGGED)
        tiers, flags = {"high": job.high, "medium": job.medium, "low": job.low}, list(map(flag_of, scores))
        return project(
            job, RunSummary, job_id=job.id, total_residents=sum(tiers.values()), risk_tiers=tiers,
            flagged_count=job.high + job.medium, flags=flags,
        )  # fmt: skip


def _day(as_of: date | None, now: datetime, *, zone: str) -> date:
    """The day to calculate for: the one asked for, or today where the property is; never a future one."""
    try:
        today = local_date(now, zone_named(zone))
    except InvalidError:
        if as_of is None:
            raise
        return as_of  # The run says what is wrong with the property.
    if as_of is not None and as_of > today:
        raise InvalidError(f"asOfDate {as_of} is in the future; the newest is today, {today}", "asOfDate")
    return as_of or today
