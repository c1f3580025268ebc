"""Templates, instances and schedules over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from holdfast.routing import By, Cursor, Limit, RequestBody, TenantId
from holdfast.services.gwi.models.automation import Instance, InstanceSchedule, Template
from holdfast.services.gwi.models.runs import AgentRun, RunType
from holdfast.services.gwi.operations.automation import Automation, Name
from holdfast.services.gwi.routes.dependencies import (
    REPEATABLE,
    TENANT,
    TENANT_PATH,
    Operations,
    action_route,
    read_route,
)

_INSTANCES: Final = f"/v1{TENANT_PATH}/instances"
_INSTANCE: Final = "/v1/instances/{instance_id:str}"


class TemplateRequest(RequestBody, frozen=True):
    """A template for all tenants."""

    name: Name
    run_type: RunType
    description: Annotated[str, Meta(max_length=1_000)] = ""
    defaults: dict[str, Any] = {}


class InstanceRequest(RequestBody, frozen=True):
    """A template for one repository."""

    template_id: str
    name: Name
    repo_id: str
    configuration: dict[str, Any] = {}


class ScheduleRequest(RequestBody, frozen=True):
    """When an instance runs by itself: `0 3 * * *` in a time zone."""

    cron: Annotated[str, Meta(max_length=100)]
    time_zone: Annotated[str, Meta(max_length=60)] = "UTC"


class EnableRequest(RequestBody, frozen=True):
    enabled: bool


class TemplatesResponse(msgspec.Struct, frozen=True, kw_only=True):
    templates: Sequence[Template]


class InstancesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A page of instances."""

    instances: list[Instance]
    cursor: str | None


class SchedulesResponse(msgspec.Struct, frozen=True, kw_only=True):
    schedules: Sequence[InstanceSchedule]


@read_route("/v1/templates", "person")
async def templates(operations: Operations) -> TemplatesResponse:
    """The templates that tenants make instances of."""
    return TemplatesResponse(templates=await operations.automation.templates())


@action_route("/v1/templates", Automation.create_template, status=201)
async def create_template(operations: Operations, by: By, data: JSONBody[TemplateRequest]) -> Template:
    """Offer a template to all tenants."""
    return await operations.automation.create_template(
        by, data.name, run_type=data.run_type, description=data.description, defaults=data.defaults
    )


@read_route(_INSTANCES, tenant=TENANT)
async def instances(
    operations: Operations, tenant_id: TenantId, limit: Limit = 50, cursor: Cursor = None
) -> InstancesResponse:
    """A tenant's instances, newest first."""
    page = await operations.automation.instances(tenant_id, limit=limit, cursor=cursor)
    return InstancesResponse(instances=list(page.docs), cursor=page.cursor)


@action_route(_INSTANCES, Automation.create_instance, tenant=TENANT, status=201)
async def create_instance(operations: Operations, by: By, data: JSONBody[InstanceRequest]) -> Instance:
    """Set up a template for one repository."""
    return await operations.automation.create_instance(
        by, data.template_id, name=data.name, repo_id=data.repo_id, configuration=data.configuration
    )


@action_route(f"{_INSTANCE}/run", Automation.run_instance, needs="person", status=202, idempotent=REPEATABLE)
async def run_instance(operations: Operations, by: By, instance_id: FromPath[str]) -> AgentRun:
    """Start a run of an instance."""
    inside = await operations.automation.enter(by, instance_id)
    return await operations.automation.run_instance(inside, instance_id)


@read_route(f"{_INSTANCE}/schedules", "person")
async def schedules(operations: Operations, by: By, instance_id: FromPath[str]) -> SchedulesResponse:
    """The schedules of an instance."""
    inside = await operations.automation.enter(by, instance_id)
    found = await operations.automation.schedules(inside.tenant_id, instance_id)
    return SchedulesResponse(schedules=found)


@action_route(
    f"{_INSTANCE}/schedules", Automation.create_schedule, needs="person", status=201,
    idempotent=REPEATABLE,
)  # fmt: skip
async def create_schedule(
    operations: Operations, by: By, instance_id: FromPath[str], data: JSONBody[ScheduleRequest]
) -> InstanceSchedule:
    """Let an instance run by itself."""
    inside = await operations.automation.enter(by, instance_id)
    return await operations.automation.create_schedule(
        inside, instance_id, cron=data.cron, time_zone=data.time_zone
    )


@action_route(
    f"/v1{TENANT_PATH}/schedules/{{schedule_id:str}}/enable", Automation.enable_schedule, tenant=TENANT
)
async def enable_schedule(
    operations: Operations, by: By, schedule_id: FromPath[str], data: JSONBody[EnableRequest]
) -> InstanceSchedule:
    """Stop a schedule, or let it go on."""
    return await operations.automation.enable_schedule(by, schedule_id, enabled=data.enabled)


ROUTES: Final[tuple[Any, ...]] = (
    templates, create_template, instances, create_instance, run_instance, schedules, create_schedule,
    enable_schedule,
)  # fmt: skip
