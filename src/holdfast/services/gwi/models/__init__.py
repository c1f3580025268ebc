"""Documents of the service."""

from __future__ import annotations

from typing import Final

from holdfast.model import Document
from holdfast.services.gwi.models.automation import Instance, InstanceSchedule, Template
from holdfast.services.gwi.models.records import AUDIT, METER
from holdfast.services.gwi.models.runs import RUNS, RequestRecord, RunApproval, RunLock, RunLog, RunTotals
from holdfast.services.gwi.models.tenants import (
    ConnectorConfig,
    Installation,
    Invite,
    Member,
    Repo,
    Tenant,
    UserProfile,
)
from holdfast.services.gwi.models.work import Candidate, DedupeEntry, SignalQueue, WorkItem, WorkSignal

DOCUMENTS: Final[tuple[type[Document], ...]] = (
    Tenant, Repo, ConnectorConfig, Instance, InstanceSchedule, WorkSignal, WorkItem, Candidate,
    *RUNS.documents, RunLog, RunTotals, UserProfile, Member, Invite, Installation, RunApproval, RunLock,
    RequestRecord,
    *AUDIT.all, *METER.all, Template, DedupeEntry, SignalQueue,
)  # fmt: skip
