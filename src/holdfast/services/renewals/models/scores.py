"""What is calculated: one score for each resident and run, and where each property stands."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.kit import NO_TENANT
from holdfast.model import MEMBERS_READ, CompositeId, Document, Index, document
from holdfast.projection import project
from holdfast.services.renewals.domain.rules import TOLERANCE_CENTS_MAX, RulesRequest, Sending
from holdfast.services.renewals.domain.scoring import (
    TOLERANCE_CENTS,
    Days,
    Points,
    Rules,
    Signal,
    Thresholds,
    Tier,
    Weights,
)

Count = Annotated[int, Meta(ge=0, le=10**12)]


@document(
    "renewal_risk_scores/{id}",
    # Unique for (resident_id, calculated_at); time first, so that a run's rows are appended, not scattered.
    id=CompositeId("calculated_at", "resident_id"),
    tenant="tenant_id",
    indexes=[
        Index("property_id", "calculated_at", "risk_tier", "-risk_score"),
        Index("resident_id", "-calculated_at"),
    ],
    append_only=True,
    access=MEMBERS_READ,
    all_columns=True,
)
class RiskScore(Document):
    """A point-in-time assessment. The tier is the one of its day, whatever the thresholds become."""

    id: str = ""
    tenant_id: str = NO_TENANT
    property_id: str
    resident_id: str
    lease_id: str
    unit_id: str
    name: str
    notice_given: bool
    as_of_date: date
    risk_score: Points
    risk_tier: Tier
    days_to_expiry: Days | None
    signals: dict[str, Signal]
    calculated_at: datetime


@document(
    "renewal_run_orders/{id}",
    id=CompositeId("calculated_at", "property_id", "number"),
    tenant="tenant_id",
    access=MEMBERS_READ,
)
class RunOrder(Document):
    """A stretch of a run's residents by the days to the end of their leases, the soonest first."""

    id: str = ""
    tenant_id: str = NO_TENANT
    property_id: str
    calculated_at: datetime
    number: Count
    residents: list[str]
    days: list[Days | None]
    tiers: list[Tier]


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    """A finished run in numbers."""

    job_id: str
    calculated_at: datetime
    as_of_date: date
    total_residents: Count
    skipped: Count
    high: Count
    medium: Count
    low: Count

    @property
    def flagged(self) -> int:
        return self.high + self.medium


@document("renewal_property_states/{property_id}", tenant="tenant_id", access=MEMBERS_READ)
class PropertyState(Document, rename="camel"):
    """The run a property is in or was in last, and what its latest finished one came to."""

    property_id: str
    tenant_id: str = NO_TENANT
    job_id: str
    latest: Summary | None = None


@document("renewal_property_rules/{property_id}", tenant="tenant_id", access=MEMBERS_READ)
class PropertyRules(Document, rename="camel"):
    """A property's own weights and thresholds, and what a run sends out by itself."""

    property_id: str
    tenant_id: str = NO_TENANT
    weights: Weights = Weights()
    thresholds: Thresholds = Thresholds()
    tolerance_cents: Annotated[int, Meta(ge=0, le=TOLERANCE_CENTS_MAX)] = TOLERANCE_CENTS
    send: Sending = "nothing"
    updated_at: datetime

    def rules(self) -> Rules:
        return Rules(self.weights, self.thresholds, self.tolerance_cents)

    def request(self) -> RulesRequest:
        return project(self, RulesRequest)
