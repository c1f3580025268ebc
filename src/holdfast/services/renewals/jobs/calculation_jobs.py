"""Calculation jobs from the outside: start one, look at it, wait for it, read what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, Final

import msgspec

from holdfast.errors import ConflictError, JobFailedError, KeyReusedError, NotFoundError, RetryLaterError
from holdfast.kit.idempotency import Done, Idempotency, StoredResponse, Ticket
from holdfast.kit.runs import Runs, Workflow
from holdfast.services.renewals.domain.dates import check_day, local_date, zone_named
from holdfast.services.renewals.domain.scoring import FLAGGED, Tier
from holdfast.services.renewals.jobs.risk_events import scores_of_run
from holdfast.services.renewals.models import (
    JOBS,
    CalculationJob,
    Property,
    PropertyRules,
    PropertyState,
    RiskScore,
)
from holdfast.services.renewals.queries.lookup import get_or_404, wait_until_done
from holdfast.store import ABSENT, Snapshot, Store, Write, put

TRIES: Final = 20
KEY_MAX: Final = 200
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
    """What whoever waits for a job is told that ended without a result."""
    said, why = ("failed" if job.status == "failed" else "was cancelled"), job.error or "no reason was given"
    return JobFailedError(
        f"calculation {job.id} {said}: {why}; mend that and calculate again",
        details={"jobId": job.id, "status": job.status, "reason": why},
    )


class Jobs:
    """The calculation jobs of one portfolio.

    Example: `job = await Jobs(store.tenant("-"), workflow).start("property-7", by="ada")`
    """

    def __init__(self, store: Store, workflow: Workflow) -> None:
        self._store, self._workflow = store, workflow
        self._runs = Runs(store, models=JOBS)

    async def get(self, job_id: str) -> CalculationJob:
        return (await get_or_404(self._store, CalculationJob, job_id, what="job")).doc

    async def start(
        self, property_id: str, *, as_of: date | None = None, by: str = "", key: str | None = None
    ) -> CalculationJob:
        """A new job, or the one under way: a property is calculated by one at a time.

        The same `key` gives the same job, also when that has ended.
        """
        if as_of is not None:
            check_day(as_of, "asOfDate")
        for _ in range(TRIES):
            try:
                return await self._try(property_id, as_of, by=by, key=key)
            except ConflictError as conflict:
                if isinstance(conflict, NotFoundError) and conflict.path == "property":
                    raise
        raise RetryLaterError(f"too many start a calculation of {property_id!r} at this moment")

    async def _try(self, property_id: str, as_of: date | None, *, by: str, key: str | None) -> CalculationJob:
        if key is None:
            job, writes = await self._begin(property_id, as_of, by=by)
            if writes:
                await self._store.commit(*writes)
            return job

        async def act(ticket: Ticket) -> Done:
            job, writes = await self._begin(property_id, as_of, by=by)
            return Done(StoredResponse(status=202, body={"jobId": job.id}), writes)

        body = {"propertyId": property_id, "asOfDate": as_of}
        idempotency = Idempotency(self._store, owner="renewals")
        try:
            given = await idempotency.run(f"calculate:{key}", body, act, wait_s=10)
        except KeyReusedError:
            raise KeyReusedError(
                f"the key {key!r} was used for another property or day; take a new one", "Idempotency-Key"
            ) from None
        return await self.get(given.answer.body["jobId"])

    async def _begin(
        self, property_id: str, as_of: date | None, *, by: str
    ) -> tuple[CalculationJob, Sequence[Write]]:
        """The job under way, or a new one with the writes that start it."""
        property = await get_or_404(self._store, Property, property_id, what="property")
        state = await self._store.get(PropertyState, property_id)
        last = None if state is None else await self._store.get(CalculationJob, state.doc.job_id)
        if last is not None and last.doc.completed_at is None:
            return last.doc, ()
        now, rules = self._store.clock.now(), await self._store.get(PropertyRules, property_id)
        fields: dict[str, Any] = {
            "property_id": property_id, "requested_by": by,
            "calculated_at": now if last is None else max(now, last.doc.calculated_at + TICK),
            "as_of_date": as_of or local_date(now, zone_named(property.doc.time_zone)),
        }  # fmt: skip
        if rules is not None:
            fields |= {"rules": rules.doc.rules(), "send": rules.doc.send}
        return self._new(property.doc, state, fields)

    def _new(
        self, property: Property, state: Snapshot[PropertyState] | None, fields: dict[str, Any]
    ) -> tuple[CalculationJob, Sequence[Write]]:
        job, writes = self._runs.writes_start(self._workflow, fields=fields)
        assert isinstance(job, CalculationJob)
        latest = None if state is None else state.doc.latest
        marked = PropertyState(property_id=property.id, tenant_id=job.tenant_id, job_id=job.id, latest=latest)
        return job, [*writes, put(marked, ABSENT if state is None else state.unchanged)]

    async def ended(self, job_id: str, *, within_s: float) -> CalculationJob:
        """The job once it has ended, or as it is when the time is over."""
        return await wait_until_done(self._store, CalculationJob, job_id, what="job", within_s=within_s)

    async def finished(self, job_id: str, *, within_s: float) -> CalculationJob:
        """The same; `JobFailedError` where it ended without a result."""
        job = await self.ended(job_id, within_s=within_s)
        if job.status in ("failed", "cancelled"):
            raise failure_of(job)
        return job

    async def summary(self, job: CalculationJob) -> RunSummary:
        """What a finished job came to, the most at risk first."""
        scores = await scores_of_run(self._store, job.property_id, job.calculated_at, tiers=FLAGGED)
        return RunSummary(
            job_id=job.id, property_id=job.property_id, as_of_date=job.as_of_date,
            calculated_at=job.calculated_at, total_residents=job.high + job.medium + job.low,
            skipped=job.skipped, flagged_count=job.high + job.medium,
            risk_tiers={"high": job.high, "medium": job.medium, "low": job.low},
            flags=[flag_of(score) for score in scores],
        )  # fmt: skip
