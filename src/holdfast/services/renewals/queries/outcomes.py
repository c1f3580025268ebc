"""Outcomes of leases, and calibration of the scores by them."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Final, Literal

from holdfast.errors import NotFoundError
from holdfast.services.renewals.domain.calibration import Calibration, Judged, calibrate
from holdfast.services.renewals.domain.dates import check_day, zone_or_utc
from holdfast.services.renewals.models import LeaseRow, Outcome, Property, Resident, RiskScore
from holdfast.services.renewals.queries.history import History
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.store import Query, Store

SCORES_LOOKED_AT: Final = 500


class Outcomes:
    """Outcomes of one portfolio.

    Example: `await Outcomes(store).calibration("property-7")`
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def build(
        self, resident_id: str, lease_id: str, *, outcome: Literal["renewed", "left"], decided_on: date
    ) -> Outcome:
        """The outcome of a lease, with the last score from before the day of the decision."""
        check_day(decided_on, "decidedOn")
        resident = await get_or_404(self._store, Resident, resident_id, what="resident")
        lease = await get_or_404(self._store, LeaseRow, lease_id, what="lease")
        if lease.doc.resident_id != resident_id:
            raise NotFoundError(f"no lease {lease_id!r} of this resident", "leaseId")
        score = await self._score_before(lease.doc, decided_on)
        result = Outcome(
            tenant_id=resident.doc.tenant_id, property_id=lease.doc.property_id, resident_id=resident_id,
            lease_id=lease_id, outcome=outcome, decided_on=decided_on, recorded_at=self._store.clock.now(),
        )  # fmt: skip
        if score is not None:
            result.risk_score, result.risk_tier = score.risk_score, score.risk_tier
            result.calculated_at = score.calculated_at
        return result

    async def _score_before(self, lease: LeaseRow, day: date) -> RiskScore | None:
        """The last score of this lease from before the property's local day of the decision."""
        home = await self._store.get(Property, lease.property_id)
        zone = zone_or_utc("" if home is None else home.doc.time_zone)
        start = datetime.combine(day, time(), zone)
        page = await History(self._store).page(lease.resident_id, before=start, limit=SCORES_LOOKED_AT)
        # Scores of the resident's other leases predicted other decisions.
        return next((one for one in page.docs if one.lease_id == lease.id), None)

    async def calibration(self, property_id: str | None = None) -> Calibration:
        """Calibrate the scores of a property, or of all."""
        query = Query(Outcome).order_by("-decided_on").limit(1_000)
        if property_id is not None:
            query = query.where("property_id", "==", property_id)
        judged = [
            Judged(item.doc.risk_score, item.doc.outcome == "left")
            async for item in self._store.scan(query)
            if item.doc.risk_score is not None
        ]
        return calibrate(judged)
