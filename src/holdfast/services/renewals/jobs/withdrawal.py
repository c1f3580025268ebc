"""Withdrawing a wrong run: the run before it is the latest again, and what was sent stays on record.

    completed ──► one commit: cancelled with who withdrew it and why │ the property's latest run │ audit event

Scores are append-only and stay; every read of them asks for finished runs, and this one counts no longer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec.structs import replace

from holdfast.errors import ConflictError, NotFoundError
from holdfast.services.renewals.domain.scoring import FLAGGED
from holdfast.services.renewals.jobs.risk_events import delivery_id_of
from holdfast.services.renewals.models import CalculationJob, DeliveryState, PropertyState, Summary
from holdfast.services.renewals.models.deliveries import RmsDeliveryStatus
from holdfast.services.renewals.queries.finished_runs import FinishedRuns
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.services.renewals.queries.scores import run_scores
from holdfast.store import Store, Transaction, put

PAGE: Final = 500


class Withdrawal(msgspec.Struct, frozen=True, kw_only=True):
    """A withdrawn run, the latest run from now on, and how many of its events are in which state."""

    job: CalculationJob
    latest: Summary | None
    events: Mapping[RmsDeliveryStatus, int] = {}

    def describe(self) -> str:
        """Say what became of the run.

        Example: `The run as of 2026-03-01 is withdrawn; the latest is as of 2026-02-01 now.`
        """
        day = None if self.latest is None else self.latest.as_of_date
        latest = "no run is left" if day is None else f"the latest is as of {day} now"
        sent = ", ".join(f"{count:,} {status}" for status, count in self.events.items())
        on_record = f" Events that it sent stay on record: {sent}." if sent else " It had sent no event."
        return f"The run as of {self.job.as_of_date} is withdrawn; {latest}.{on_record}"


class Withdrawals:
    """Withdraws runs of one portfolio.

    Example: `await store.transact(lambda tx: Withdrawals(store).add(tx, "p1", "run-1", why="withdrawn"))`
    """

    def __init__(self, store: Store) -> None:
        self._store, self._runs = store, FinishedRuns(store)

    async def add(self, tx: Transaction, property_id: str, run_id: str, *, why: str) -> Withdrawal:
        """Add the withdrawal to a transaction; ConflictError unless the run is the latest finished one."""
        await get_or_404(self._store, CalculationJob, run_id, what="run")
        stored = await tx.get(CalculationJob, run_id)
        if stored is None or stored.doc.property_id != property_id:
            raise NotFoundError(f"no run {run_id!r} of property {property_id!r}", "run")
        state = await tx.get(PropertyState, property_id)
        if state is None:
            raise NotFoundError(f"property {property_id!r} was removed", "property")
        _require_latest(stored.doc, state.doc)
        before, now = await self._runs.before(property_id, stored.doc.calculated_at), self._store.clock.now()
        job = replace(stored.doc, status="cancelled", error=why, withdrawn_at=now, updated_at=now)
        tx.write(put(job), put(replace(state.doc, latest=before)))
        return Withdrawal(job=job, latest=before)

    async def page(
        self, property_id: str, calculated_at: datetime, *, limit: int = PAGE, cursor: str | None = None
    ) -> tuple[list[DeliveryState], str | None]:
        """The events that a run has sent, for so many of those whom it flags; the most at risk first."""
        scores = await self._store.query(
            run_scores(property_id, calculated_at, tiers=FLAGGED).limit(limit).after(cursor)
        )
        found = await self._store.get_many(DeliveryState, [delivery_id_of(one) for one in scores.docs])
        return [one.doc for one in found if one is not None], scores.cursor

    async def count_events(self, job: CalculationJob) -> dict[RmsDeliveryStatus, int]:
        """How many of a run's events are in which state."""
        counts, cursor, more = Counter[RmsDeliveryStatus](), None, True
        while more:
            sent, cursor = await self.page(job.property_id, job.calculated_at, cursor=cursor)
            counts.update(one.status for one in sent)
            more = cursor is not None
        return dict(counts)


def _require_latest(job: CalculationJob, state: PropertyState) -> None:
    if job.withdrawn_at is not None:
        raise ConflictError(f"run {job.id!r} was already {job.error}")
    if job.status != "completed":
        raise ConflictError(f"run {job.id!r} is {job.status}; only a finished run can be withdrawn")
    if state.latest is None or state.latest.job_id != job.id:
        newest = "" if state.latest is None else f", {state.latest.job_id!r}"
        raise ConflictError(f"run {job.id!r} is not the latest; withdraw those after it first{newest}")
