"""Recording what became of residents, and judging the scores by it."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Literal

from holdfast.errors import NotFoundError
from holdfast.services.renewals.calibration import Calibration, Judged, calibrate
from holdfast.services.renewals.models import LeaseRow, Outcome, Resident, RiskScore
from holdfast.services.renewals.there import found
from holdfast.store import Query, Store, put


class Outcomes:
    """Outcomes of one portfolio.

    Example: `await Outcomes(store).record("resident-1", "lease-1", outcome="left", decided_on=day)`
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def record(
        self, resident_id: str, lease_id: str, *, outcome: Literal["renewed", "left"], decided_on: date
    ) -> Outcome:
        """Keep an outcome with the last score from before that day; recorded again, it is corrected."""
        resident = await found(self._store, Resident, resident_id, what="resident")
        lease = await found(self._store, LeaseRow, lease_id, what="lease")
        if lease.doc.resident_id != resident_id:
            raise NotFoundError(f"no lease {lease_id!r} of this resident", "leaseId")
        score = await self._score_before(resident_id, decided_on)
        made = Outcome(
            tenant_id=resident.doc.tenant_id, property_id=resident.doc.property_id, resident_id=resident_id,
            lease_id=lease_id, outcome=outcome, decided_on=decided_on, recorded_at=self._store.clock.now(),
        )  # fmt: skip
        if score is not None:
            made.risk_score, made.risk_tier = score.risk_score, score.risk_tier
            made.calculated_at = score.calculated_at
        await self._store.commit(put(made))
        return made

    async def _score_before(self, resident_id: str, day: date) -> RiskScore | None:
        """The last score that was there before the day of the decision began."""
        start = datetime.combine(day, time(), UTC)
        query = Query(RiskScore).where("resident_id", "==", resident_id).where("calculated_at", "<", start)
        page = await self._store.query(query.order_by("-calculated_at").limit(1))
        return page.docs[0] if page.docs else None

    async def calibration(self, property_id: str | None = None) -> Calibration:
        """How the scores did, for a property or for all."""
        query = Query(Outcome).order_by("-decided_on").limit(1_000)
        if property_id is not None:
            query = query.where("property_id", "==", property_id)
        judged = [
            Judged(item.doc.risk_score, item.doc.outcome == "left")
            async for item in self._store.scan(query)
            if item.doc.risk_score is not None
        ]
        return calibrate(judged)
