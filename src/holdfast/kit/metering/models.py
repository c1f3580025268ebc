"""Documents of metering: a ledger of events, and sums that move in the same commit."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.model import MEMBERS_READ, CompositeId, Document, Index, document


@document(
    "holdfast_usage_events/{id}",
    id=CompositeId("tenant_id", "fact"),
    tenant="tenant_id",
    indexes=[Index("month", "at"), Index("-at")],
    append_only=True,
    access=MEMBERS_READ,
)
class UsageEvent(Document, rename="camel"):
    """One fact that used something. `fact` is its idempotency key: a fact never counts twice."""

    id: str = ""
    tenant_id: str
    fact: str
    at: datetime
    month: str
    kind: str
    metrics: dict[str, int]
    metadata: Any = None


@document(
    "holdfast_usage_sums/{id}",
    id=CompositeId("tenant_id", "metric", "day", "shard"),
    tenant="tenant_id",
    indexes=[
        Index("metric", "day", "value"),
        Index("metric", "month", "value"),
        Index("month", "metric", "day"),
    ],
    access=MEMBERS_READ,
)
class UsageSum(Document, rename="camel"):
    """A day's sum of one metric, in as many shards as the engine wants for a hot counter."""

    id: str = ""
    tenant_id: str
    metric: str
    day: str
    month: str
    shard: int
    value: int


@document(
    "holdfast_allowances/{id}",
    id=CompositeId("tenant_id", "name"),
    tenant="tenant_id",
    indexes=[Index("name")],
    access=MEMBERS_READ,
)
class Allowance(Document, rename="camel"):
    """Usage of something limited, in a period or at the moment.

    `limit` is the one it was last taken against; 0 where nothing was taken since limits are stored.
    """

    id: str = ""
    tenant_id: str
    name: str
    used: int
    limit: int = 0
