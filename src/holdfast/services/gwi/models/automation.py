"""Automation: templates of runs, a tenant's instances of them, and when these run by themselves."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from holdfast.model import MEMBERS_READ, Access, Claim, Document, Index, TimestampId, document
from holdfast.services.gwi.models.runs import RunType


@document(
    "gwi_templates/{id}",
    id=TimestampId("tmpl"),
    indexes=[Index("name"), Index("-created_at")],
    access=Access(read=["signed_in", "service"]),
)
class Template(Document, rename="camel"):
    """A kind of run that tenants make instances of; `parameters` is a JSON Schema of their configuration."""

    id: str = ""
    name: str
    description: str = ""
    run_type: RunType
    parameters: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    version: int = 1
    created_at: datetime
    updated_at: datetime


@document(
    "gwi_tenants/{tenant_id}/instances/{id}",
    id=TimestampId("inst"),
    tenant="tenant_id",
    indexes=[Index("-created_at"), Index("template_id", "-created_at"), Index("id", across="tenants")],
    immutable=["template_id", "created_at"],
    access=MEMBERS_READ,
)
class Instance(Document, rename="camel"):
    """A template with a tenant's configuration, on one of its repositories."""

    id: str = ""
    tenant_id: str
    template_id: str
    template_version: int = 1
    name: str
    repo_id: str
    configuration: dict[str, Any] = {}
    enabled: bool = True
    last_run_id: str | None = None
    last_run_at: datetime | None = None
    created_by: str = ""
    created_at: datetime
    updated_at: datetime


@document(
    "gwi_tenants/{tenant_id}/schedules/{id}",
    id=TimestampId("sched"),
    tenant="tenant_id",
    indexes=[Index("instance_id", "-created_at"), Index("-created_at")],
    claim=Claim(due="due_at", fence="fence", owner="held_by"),
    access=MEMBERS_READ,
)
class InstanceSchedule(Document, rename="camel"):
    """When an instance runs by itself; `due_at` is null while it is not `enabled`."""

    id: str = ""
    tenant_id: str
    instance_id: str
    cron: str
    time_zone: str = "UTC"
    enabled: bool = True
    due_at: datetime | None = None
    fence: int = 0
    held_by: str = ""
    last_run_id: str | None = None
    last_run_at: datetime | None = None
    last_error: str | None = None
    created_by: str = ""
    created_at: datetime
    updated_at: datetime
