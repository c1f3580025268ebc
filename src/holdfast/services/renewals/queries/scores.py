"""The scores of one run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from holdfast.services.renewals.domain.scoring import Tier
from holdfast.services.renewals.models import RiskScore
from holdfast.store import Query, Store


def run_scores(property_id: str, calculated_at: datetime, *, tiers: Sequence[Tier]) -> Query[RiskScore]:
    """The query for a run's scores of these tiers, the highest first."""
    query = Query(RiskScore).where("property_id", "==", property_id)
    query = query.where("calculated_at", "==", calculated_at).where("risk_tier", "in", list(tiers))
    return query.order_by("-risk_score")


async def scan_run(
    store: Store, property_id: str, calculated_at: datetime, *, tiers: Sequence[Tier]
) -> AsyncIterator[RiskScore]:
    """Stream a run's scores of these tiers, the highest first."""
    async for item in store.scan(run_scores(property_id, calculated_at, tiers=tiers).limit(1_000)):
        yield item.doc


async def scores_of_run(
    store: Store, property_id: str, calculated_at: datetime, *, tiers: Sequence[Tier]
) -> list[RiskScore]:
    """Load a run's scores of these tiers, the highest first."""
    return [score async for score in scan_run(store, property_id, calculated_at, tiers=tiers)]
