"""A property's finished runs: the latest, the one of a day, one by its id, and all of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime

from holdfast.errors import InvalidError, NotFoundError
from holdfast.projection import project
from holdfast.services.renewals.domain.scoring import Tier
from holdfast.services.renewals.models import CalculationJob, Property, PropertyState, Summary
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.store import Query, Store


class FinishedRuns:
    """What the properties of one portfolio can be looked at by. A run has the id of its job.

    Example: `runs, cursor = await FinishedRuns(store).all("property-7", limit=20)`
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def choose(
        self, property_id: str, *, id: str | None = None, as_of: date | None = None
    ) -> Summary | None:
        """The run with this id, the one for an as-of date, or the latest of all; None where there is none."""
        if id is not None and as_of is not None:
            raise InvalidError("choose a run by its id or by asOf, not by both", "asOf")
        await get_or_404(self._store, Property, property_id, what="property")
        if id is not None:
            return await self.get(property_id, id)
        return await self.latest(property_id) if as_of is None else await self._up_to(property_id, as_of)

    async def latest(self, property_id: str) -> Summary | None:
        """The one that was calculated last."""
        state = await self._store.get(PropertyState, property_id)
        return None if state is None else state.doc.latest

    async def get(self, property_id: str, run_id: str) -> Summary:
        """One by its id; `NotFoundError` says what to do where the property has no such run."""
        try:
            job = (await get_or_404(self._store, CalculationJob, run_id, what="run")).doc
        except NotFoundError:
            job = None
        if job is not None and job.property_id == property_id and job.withdrawn_at is not None:
            raise NotFoundError(f"run {run_id!r} was {job.error}; its scores count no longer", "run")
        if job is None or job.property_id != property_id or job.status != "completed":
            raise NotFoundError(
                f"no finished run {run_id!r} of property {property_id!r};"
                " choose one of its runs, or leave `run` out to see the latest",
                "run",
            )
        return summary_of(job)

    async def all(
        self, property_id: str, *, until: datetime | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Summary], str | None]:
        """The newest first; with `until`, those calculated up to then."""
        query = _finished(property_id)
        if until is not None:
            query = query.where("calculated_at", "<=", until)
        page = await self._store.query(query.order_by("-calculated_at").limit(limit).after(cursor))
        return [summary_of(job) for job in page.docs], page.cursor

    async def before(self, property_id: str, calculated_at: datetime) -> Summary | None:
        """The one that was calculated last before then."""
        query = _finished(property_id).where("calculated_at", "<", calculated_at)
        jobs = (await self._store.query(query.order_by("-calculated_at").limit(1))).docs
        return summary_of(jobs[0]) if jobs else None

    async def _up_to(self, property_id: str, as_of: date) -> Summary | None:
        """Of the nearest day up to this one, the run that was calculated last."""
        query = _finished(property_id).where("as_of_date", "<=", as_of)
        jobs = (await self._store.query(query.order_by("-as_of_date", "-calculated_at").limit(1))).docs
        return summary_of(jobs[0]) if jobs else None


def _finished(property_id: str) -> Query[CalculationJob]:
    return Query(CalculationJob).where("property_id", "==", property_id).where("status", "==", "completed")


def count_of(run: Summary, tiers: Sequence[Tier]) -> int:
    """How many residents a run has in these tiers."""
    return sum(getattr(run, tier) for tier in set(tiers))


def summary_of(job: CalculationJob) -> Summary:
    return project(job, Summary, job_id=job.id, total_residents=job.high + job.medium + job.low)
