"""What became of residents, against which the scores are judged."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

from holdfast.kit import NO_TENANT
from holdfast.model import MEMBERS_READ, CompositeId, Document, Index, document
from holdfast.services.renewals.domain.scoring import Points, Tier


@document(
    "renewal_outcomes/{id}",
    # A lease has one resident, and one end.
    id=CompositeId("lease_id"),
    tenant="tenant_id",
    indexes=[Index("property_id", "-decided_on"), Index("-decided_on")],
    access=MEMBERS_READ,
)
class Outcome(Document, rename="camel"):
    """Whether a lease was renewed or its resident left, with the last score from before that day."""

    id: str = ""
    tenant_id: str = NO_TENANT
    property_id: str
    resident_id: str
    lease_id: str
    outcome: Literal["renewed", "left"]
    decided_on: date
    risk_score: Points | None = None
    risk_tier: Tier | None = None
    calculated_at: datetime | None = None
    recorded_at: datetime
