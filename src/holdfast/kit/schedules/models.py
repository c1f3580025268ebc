"""Documents of schedules: when each is next due, and the outcome of every slot."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from holdfast.model import MEMBERS_READ, Claim, CompositeId, Document, Index, Lifecycle, Retention, document

KEEP_RUNS_S = 30 * 86_400


@document(
    "holdfast_schedules/{id}",
    id=CompositeId("tenant_id", "name"),
    tenant="tenant_id",
    indexes=[Index("name"), Index("name", across="tenants")],
    claim=Claim(due="next_at", fence="fence", owner="owner"),
    access=MEMBERS_READ,
)
class Schedule(Document, rename="camel"):
    """A recurring job. `slot_at` is its next slot, `next_at` when it is due for a worker."""

    id: str = ""
    tenant_id: str
    name: str
    cron: str
    zone: str
    missed: Literal["skip", "once", "all"]
    slot_at: datetime | None
    next_at: datetime | None
    run_now_at: datetime | None = None
    enabled: bool = True
    attempts: int = 0
    last_run_id: str = ""
    last_status: str = ""
    fence: int = 0
    owner: str = ""


@document(
    "holdfast_slot_runs/{id}",
    id=CompositeId("schedule_id", "slot"),
    tenant="tenant_id",
    indexes=[Index("schedule_id", "-slot_at"), Index("status", "-slot_at")],
    lifecycle=Lifecycle(
        "status",
        initial=["running", "missed"],
        moves={"running": ["done", "failed", "retrying"], "retrying": ["running", "failed"]},
    ),
    retention=Retention("finished_at", after_s=KEEP_RUNS_S),
    access=MEMBERS_READ,
)
class SlotRun(Document, rename="camel"):
    """The outcome of one slot; its id holds the slot, so there is one per slot whoever runs it."""

    id: str = ""
    tenant_id: str
    schedule_id: str
    slot: str
    slot_at: datetime
    status: Literal["running", "retrying", "done", "failed", "missed"]
    attempts: int = 0
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error: str = ""
    result: Any = None
