"""Two services, each with every part of the kit in collections of its own, and a workflow that uses them."""

from __future__ import annotations

from typing import Any, Final

from holdfast.kit.audit import AuditEntry, AuditEvent, AuditFields, AuditHead, AuditHeadFields, AuditModels
from holdfast.kit.checkpoints import CHECKPOINT_INDEXES, CheckpointFields
from holdfast.kit.connections import CONNECTION_INDEXES, CONNECTION_LIFE, ConnectionFields, ConnectionModels
from holdfast.kit.metering import (
    Allowance,
    AllowanceFields,
    MeterModels,
    UsageEvent,
    UsageEventFields,
    UsageSum,
    UsageSumFields,
)
from holdfast.kit.outbox import Event, Outbox, OutboxModels
from holdfast.kit.runs import (
    RUN_CLAIM,
    RUN_INDEXES,
    RUN_LIFE,
    STEP_INDEXES,
    STEP_LIFE,
    RunFields,
    RunModels,
    Runs,
    Step,
    StepFields,
    Workflow,
)
from holdfast.model import Document, ProvidedId, Retention, TimestampId, document, schema_of
from holdfast.service import (
    AuditPart,
    ConnectionPart,
    Context,
    MeterPart,
    OutboxPart,
    Parts,
    RunPart,
    Service,
)
from holdfast.store import Query, Store, create
from tests.operations.outboxes import outbox_models

TENANT: Final = "acme"
ENDPOINT: Final = "crm"
RUNS_KEPT_S: Final = 86_400


def audit_models(prefix: str) -> AuditModels:
    declared = schema_of(AuditEvent).declared

    @document(
        f"{prefix}_audit/{{id}}", id=TimestampId("evt"), tenant="tenant_id", indexes=declared.indexes,
        append_only=True, access=declared.access,
    )  # fmt: skip
    class OwnEvent(AuditFields, rename="camel"):
        pass

    @document(f"{prefix}_audit_heads/{{tenant_id}}", tenant="tenant_id", access=schema_of(AuditHead).access)
    class OwnHead(AuditHeadFields, rename="camel"):
        pass

    return AuditModels(event=OwnEvent, head=OwnHead)


def meter_models(prefix: str) -> MeterModels:
    def declare(kit: type[Document], name: str) -> Any:
        given = schema_of(kit).declared
        return document(
            f"{prefix}_{name}/{{id}}", id=given.id, tenant="tenant_id", indexes=given.indexes,
            append_only=given.append_only, access=given.access,
        )  # fmt: skip

    class OwnUsage(UsageEventFields, rename="camel"):
        pass

    class OwnSum(UsageSumFields, rename="camel"):
        pass

    class OwnAllowance(AllowanceFields, rename="camel"):
        pass

    return MeterModels(
        event=declare(UsageEvent, "usage")(OwnUsage),
        sums=declare(UsageSum, "usage_sums")(OwnSum),
        allowance=declare(Allowance, "allowances")(OwnAllowance),
    )


def run_models(prefix: str) -> RunModels:
    @document(
        f"{prefix}_runs/{{id}}", id=TimestampId("run"), tenant="tenant_id", indexes=RUN_INDEXES,
        claim=RUN_CLAIM, lifecycle=RUN_LIFE, retention=Retention("completed_at", after_s=RUNS_KEPT_S),
    )  # fmt: skip
    class OwnWork(RunFields, rename="camel"):
        pass

    @document(
        f"{prefix}_runs/{{run_id}}/{prefix}_steps/{{id}}", id=TimestampId("step"), tenant="tenant_id",
        indexes=STEP_INDEXES, lifecycle=STEP_LIFE,
    )  # fmt: skip
    class OwnWorkStep(StepFields, rename="camel"):
        pass

    @document(f"{prefix}_checkpoints/{{checkpoint_id}}", tenant="tenant_id", indexes=CHECKPOINT_INDEXES)
    class OwnCheckpoint(CheckpointFields, rename="camel"):
        pass

    return RunModels(run=OwnWork, step=OwnWorkStep, checkpoint=OwnCheckpoint)


def connection_models(prefix: str) -> ConnectionModels:
    @document(
        f"{prefix}_connections/{{id}}", id=ProvidedId(), tenant="tenant_id", indexes=CONNECTION_INDEXES,
        lifecycle=CONNECTION_LIFE,
    )  # fmt: skip
    class OwnConnection(ConnectionFields, rename="camel"):
        pass

    return ConnectionModels(connection=OwnConnection)


class OwnParts:
    """What one service brings. Its workflow's one step uses audit, meter and outbox."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.audit, self.meter = audit_models(name), meter_models(name)
        self.runs, self.connections = run_models(name), connection_models(name)
        self.outbox: OutboxModels = outbox_models(name)
        self.workflow = stub_workflow()

    @property
    def documents(self) -> list[type[Document]]:
        return [
            *self.audit.all, *self.meter.all, *self.runs.documents, *self.outbox.all, *self.connections.all,
        ]  # fmt: skip

    def service(self) -> Service:
        return Service(name=self.name, summary="Gathers.", documents=self.documents, build=self.build)

    def build(self, context: Context) -> Parts:
        workflow = self.workflow = Workflow("gather")

        @workflow.step()
        async def work(step: Step) -> str:
            tenant_id = step.run.tenant_id
            store = context.store.tenant(tenant_id)
            endpoint = await store.get(self.outbox.endpoint, ENDPOINT)
            assert endpoint is not None
            event = Event(type="gathered", body=b"{}", id=step.run.id, fields={"basket": "b1"})
            meter = context.meter(tenant_id, models=self.meter)
            step.add(
                *Outbox(store, models=self.outbox).writes(event, [endpoint.doc]),
                *meter.writes(step.run.id, {f"{self.name}.baskets": 1}),
            )
            entry = AuditEntry(action=f"{self.name}.gathered", actor="workflow", subject=step.run.id)
            await context.audit(tenant_id, models=self.audit).append(entry)
            return self.name

        return Parts(
            outboxes=[
                OutboxPart(
                    name=self.name, models=self.outbox, dispatcher=context.dispatcher(self.outbox),
                    test_fields={"basket": "none"},
                )
            ],
            runs=[RunPart(models=self.runs, workflows=[workflow])],
            audits=[AuditPart(name=self.name, models=self.audit)],
            meters=[MeterPart(name=self.name, models=self.meter)],
            connections=[ConnectionPart(models=self.connections)],
        )  # fmt: skip

    async def seed(self, store: Store) -> None:
        """A paused endpoint, so that deliveries wait, and a connected account."""
        now, acme = store.clock.now(), store.tenant(TENANT)
        endpoint = self.outbox.endpoint(
            id=ENDPOINT, tenant_id=TENANT, url="https://crm.example/hook", created_at=now, status="paused"
        )
        connection = self.connections.connection(
            id=f"{self.name}-account", tenant_id=TENANT, provider="registrar", account="1042",
            name=f"{self.name}@hoge.jp", connected_at=now,
        )  # fmt: skip
        await acme.commit(create(endpoint), create(connection))

    async def start(self, store: Store) -> str:
        """Start a run; return its id."""
        return (await Runs(store.tenant(TENANT), models=self.runs).start(self.workflow)).id

    async def stored(self, store: Store) -> dict[str, int]:
        """How many documents there are of what a finished run leaves behind, and of what was seeded."""
        kinds: dict[str, type[Document]] = {
            "runs": self.runs.run, "audit": self.audit.event, "usage": self.meter.event,
            "deliveries": self.outbox.delivery, "connections": self.connections.connection,
        }  # fmt: skip
        everything = store.privileged()
        return {name: len((await everything.query(Query(k).limit(500))).items) for name, k in kinds.items()}


def stub_workflow() -> Workflow:
    """A workflow to start runs with where nothing executes them."""
    workflow = Workflow("gather")
    workflow.step(name="work")(_nothing)
    return workflow


async def _nothing(step: Step) -> None: ...


ORCHARD: Final = OwnParts("orchard")
HARBOUR: Final = OwnParts("harbour")
