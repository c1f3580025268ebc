"""Templates of runs, a tenant's instances of them, and the schedules by which these run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from holdfast.errors import ConflictError, InvalidError, NotFoundError
from holdfast.kit.access.authorization import has_role
from holdfast.kit.schedules.cron import check_cron, next_slot
from holdfast.operation import Operator, operation
from holdfast.services.gwi.models.automation import Instance, InstanceSchedule, Template
from holdfast.services.gwi.models.runs import AgentRun, RunTrigger, RunType, TriggerSource
from holdfast.services.gwi.models.tenants import Repo, RiskMode
from holdfast.services.gwi.operations.declaration import gwi_operation
from holdfast.services.gwi.run_starts import RunRequest, RunStarts, receipt_of, started_details
from holdfast.store import Query, QueryPage, Store, Transaction, create, patch, put

AREA: Final = "automation"
SCHEDULES_MAX: Final = 20
Name = Annotated[str, Meta(min_length=1, max_length=100)]


class RunConfiguration(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What an instance sets for its runs; its JSON schema is the parameters of every template."""

    number: Annotated[int, Meta(ge=1)] | None = None
    title: Annotated[str, Meta(max_length=200)] = ""
    instructions: Annotated[str, Meta(max_length=10_000)] = ""
    risk_mode: RiskMode | None = None


_PURPOSES: Final[Mapping[RunType, str]] = {
    "triage": "Judge how complex a pull request is.",
    "plan": "Plan the work on an issue.",
    "resolve": "Merge the target branch into a pull request.",
    "review": "Review a pull request.",
    "autopilot": "Make a change and open a pull request.",
}


def _built_in(type: RunType, purpose: str) -> Template:
    began = datetime(2024, 1, 1, tzinfo=UTC)
    return Template(
        id=f"tmpl-{type}", name=type, description=purpose, run_type=type,
        parameters=msgspec.json.schema(RunConfiguration), created_at=began, updated_at=began,
    )  # fmt: skip


# One for each type of run; others are documents.
BUILT_IN: Final = {one.id: one for one in (_built_in(*pair) for pair in _PURPOSES.items())}


class InstanceStarts:
    """Starts runs of instances in the caller's transaction: asked for by people, or at their times."""

    def __init__(self, store: Store, starts: RunStarts) -> None:
        self._store, self._starts = store, starts

    async def start(
        self, tx: Transaction, tenant_id: str, instance_id: str, *, trigger: RunTrigger, actor: str = ""
    ) -> AgentRun:
        """Start a run of an instance in the caller's transaction."""
        stored = await tx.get(Instance, tenant_id, instance_id)
        if stored is None:
            raise NotFoundError(f"no instance {instance_id!r}")
        instance = stored.doc
        if not instance.enabled:
            raise ConflictError(f"instance {instance_id} is not enabled")
        template = await self.template(instance.template_id)
        given = _configuration(template.defaults | instance.configuration)
        request = RunRequest(
            type=template.run_type, repo_id=instance.repo_id, trigger=trigger, instance_id=instance_id,
            number=given.number, title=given.title or instance.name, instructions=given.instructions,
            risk_mode=given.risk_mode,
        )  # fmt: skip
        run = await self._starts.start(tx, tenant_id, request, actor=actor)
        changes = {"last_run_id": run.id, "last_run_at": run.created_at, "updated_at": run.created_at}
        tx.write(patch(Instance, tenant_id, instance_id, changes=changes))
        return run

    async def template(self, template_id: str) -> Template:
        """A template, built in or stored."""
        if template_id in BUILT_IN:
            return BUILT_IN[template_id]
        stored = await self._store.privileged().get(Template, template_id)
        if stored is None:
            raise NotFoundError(f"no template {template_id!r}")
        return stored.doc


class Automation:
    """The operations on templates, instances and schedules, and their reads.

    Example: `await operations.automation.run_instance(by, instance.id)`
    """

    def __init__(self, store: Store, starts: InstanceStarts) -> None:
        self._store, self._clock, self._starts = store, store.clock, starts

    @operation("template.created", area=AREA, verb="create", needs="admin", platform=True)
    async def create_template(
        self, by: Operator, name: str, *, run_type: RunType, description: str = "",
        defaults: Mapping[str, Any] | None = None,
    ) -> Template:  # fmt: skip
        """Offer a kind of run with its usual configuration to all tenants."""
        _configuration(defaults or {})
        now = self._clock.now()
        template = Template(
            name=name, description=description, run_type=run_type, defaults=dict(defaults or {}),
            parameters=msgspec.json.schema(RunConfiguration), created_at=now, updated_at=now,
        )  # fmt: skip
        write = create(template)

        async def act(tx: Transaction) -> Template:
            tx.write(write)
            return template

        return await by.commit(act, subject=template.id, details={"name": name}, across=True)

    @gwi_operation("instance.created", area=AREA, verb="create", needs="developer")
    async def create_instance(
        self, by: Operator, template_id: str, *, name: str, repo_id: str,
        configuration: Mapping[str, Any] | None = None,
    ) -> Instance:  # fmt: skip
        """Set up a template for one of the tenant's repositories."""
        template = await self._starts.template(template_id)
        _configuration(template.defaults | dict(configuration or {}))
        now = self._clock.now()
        instance = Instance(
            tenant_id=by.tenant_id, template_id=template.id, template_version=template.version, name=name,
            repo_id=repo_id, configuration=dict(configuration or {}), created_by=by.actor, created_at=now,
            updated_at=now,
        )  # fmt: skip
        write = create(instance)

        async def act(tx: Transaction) -> Instance:
            if await tx.get(Repo, by.tenant_id, repo_id) is None:
                raise NotFoundError(f"no repository {repo_id!r} is connected", "repoId")
            tx.write(write)
            return instance

        return await by.commit(
            act, subject=instance.id, details={"template": template.id, "name": name, "repoId": repo_id}
        )

    @gwi_operation("run_started", area=AREA, verb="run", needs="developer", subject="instance_id")
    async def run_instance(
        self, by: Operator, instance_id: str, *, source: TriggerSource = "api"
    ) -> AgentRun:
        """Start a run of an instance, within the limits of the tenant's plan."""
        trigger = RunTrigger(source=source, user_id=by.actor)
        return await by.commit(
            lambda tx: self._starts.start(tx, by.tenant_id, instance_id, trigger=trigger),
            details=started_details, subject=lambda run: run.id,
            fields=receipt_of,
        )  # fmt: skip

    @gwi_operation("schedule.created", area=AREA, verb="schedule", needs="developer", subject="instance_id")
    async def create_schedule(
        self, by: Operator, instance_id: str, *, cron: str, time_zone: str = "UTC"
    ) -> InstanceSchedule:
        """Let an instance run by itself."""
        check_cron(cron, time_zone)
        now = self._clock.now()
        schedule = InstanceSchedule(
            tenant_id=by.tenant_id, instance_id=instance_id, cron=cron, time_zone=time_zone,
            due_at=next_slot(cron, time_zone, now), created_by=by.actor, created_at=now, updated_at=now,
        )  # fmt: skip
        write = create(schedule)
        if len(await self.schedules(by.tenant_id, instance_id)) >= SCHEDULES_MAX:
            raise ConflictError(f"an instance has at most {SCHEDULES_MAX} schedules; delete one")

        async def act(tx: Transaction) -> InstanceSchedule:
            if await tx.get(Instance, by.tenant_id, instance_id) is None:
                raise NotFoundError(f"no instance {instance_id!r}")
            tx.write(write)
            return schedule

        return await by.commit(act, details={"schedule": schedule.id, "cron": cron, "timeZone": time_zone})

    @gwi_operation("schedule.changed", area=AREA, verb="schedule", needs="developer", subject="schedule_id")
    async def enable_schedule(self, by: Operator, schedule_id: str, *, enabled: bool) -> InstanceSchedule:
        """Stop a schedule, or let it go on from its next time."""

        async def act(tx: Transaction) -> InstanceSchedule:
            stored = await tx.get(InstanceSchedule, by.tenant_id, schedule_id)
            if stored is None:
                raise NotFoundError(f"no schedule {schedule_id!r}")
            schedule, now = stored.doc, self._clock.now()
            schedule.enabled, schedule.updated_at = enabled, now
            schedule.due_at = next_slot(schedule.cron, schedule.time_zone, now) if enabled else None
            tx.write(put(schedule))
            return schedule

        return await by.commit(act, details={"enabled": enabled})

    # -- reads ----------------------------------------------------------------------------------

    async def templates(self, *, limit: int = 100) -> Sequence[Template]:
        """The templates: those built in, then the stored ones by name."""
        query = Query(Template).order_by("name").limit(limit)
        return [*BUILT_IN.values(), *(await self._store.privileged().query(query)).docs]

    async def instances(
        self, tenant_id: str, *, limit: int = 50, cursor: str | None = None
    ) -> QueryPage[Instance]:
        """A tenant's instances, newest first."""
        query = Query(Instance).under(tenant_id).order_by("-created_at").limit(limit).after(cursor)
        return await self._store.tenant(tenant_id).query(query)

    async def enter(self, by: Operator, instance_id: str) -> Operator:
        """The caller in the instance's tenant; NotFoundError, too, for whoever has no role there."""
        query = Query(Instance).where("id", "==", instance_id).across_parents().limit(1)
        found = (await self._store.privileged().query(query)).docs
        inside = await by.in_tenant(found[0].tenant_id) if found else by
        if not found or not has_role(inside.caller, "viewer", inside.tenant_id):
            raise NotFoundError(f"no instance {instance_id!r}")
        return inside

    async def schedules(self, tenant_id: str, instance_id: str) -> Sequence[InstanceSchedule]:
        """The schedules of an instance, newest first."""
        query = Query(InstanceSchedule).under(tenant_id).where("instance_id", "==", instance_id)
        return (await self._store.tenant(tenant_id).query(query.order_by("-created_at"))).docs


def _configuration(given: Mapping[str, Any]) -> RunConfiguration:
    try:
        return msgspec.convert(dict(given), RunConfiguration)
    except msgspec.ValidationError as fault:
        raise InvalidError(f"the configuration is wrong: {fault}", "configuration") from None
