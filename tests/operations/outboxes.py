"""Two services, each with an outbox of its own, in one process, and people of several roles."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from holdfast.config import load_config
from holdfast.errors import NotFoundError
from holdfast.kit.audit import AuditEntry, AuditEvent, AuditHead
from holdfast.kit.outbox import (
    DeadLetter,
    Delivery,
    Endpoint,
    EndpointNotice,
    EndpointSecrets,
    Event,
    FifoLane,
    Outbox,
    OutboxModels,
    RetryPolicy,
    new_secret,
)
from holdfast.model import Caller, Document, Index, UlidId, document, schema_of
from holdfast.operation import Operator
from holdfast.runtime import Runtime
from holdfast.service import Context, OutboxPart, Parts, Service
from holdfast.store import Query, Transaction, create, patch, put

TENANT: Final = "acme"
AT: Final = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
_DELIVERY = schema_of(Delivery).declared
_ENDPOINT = schema_of(Endpoint).declared
_LETTER = schema_of(DeadLetter).declared


def outbox_models(prefix: str) -> OutboxModels:
    """The five documents of an outbox, in collections of their own; a delivery has a field of its own."""

    @document(
        f"{prefix}_endpoints/{{id}}", id=_ENDPOINT.id, tenant="tenant_id", indexes=_ENDPOINT.indexes,
        lifecycle=_ENDPOINT.lifecycle, immutable=_ENDPOINT.immutable,
    )  # fmt: skip
    class OwnEndpoint(Endpoint, rename="camel"):
        pass

    @document(
        f"{prefix}_deliveries/{{id}}", tenant="tenant_id", indexes=_DELIVERY.indexes, claim=_DELIVERY.claim,
        lifecycle=_DELIVERY.lifecycle, immutable=_DELIVERY.immutable,
    )  # fmt: skip
    class OwnDelivery(Delivery, rename="camel"):
        basket: str

    @document(f"{prefix}_dead_letters/{{id}}", tenant="tenant_id", indexes=_LETTER.indexes)
    class OwnDeadLetter(DeadLetter, rename="camel"):
        pass

    @document(
        f"{prefix}_notices/{{id}}", id=UlidId(), tenant="tenant_id", indexes=[Index("endpoint_id", "-at")],
        append_only=True,
    )  # fmt: skip
    class OwnNotice(EndpointNotice, rename="camel"):
        pass

    @document(f"{prefix}_lanes/{{id}}", tenant="tenant_id")
    class OwnLane(FifoLane, rename="camel"):
        pass

    return OutboxModels(
        endpoint=OwnEndpoint, delivery=OwnDelivery, dead_letter=OwnDeadLetter, notice=OwnNotice,
        fifo_lane=OwnLane,
    )  # fmt: skip


def outbox_service(name: str, models: OutboxModels, **more: Any) -> Service:
    def build(context: Context) -> Parts:
        part = OutboxPart(
            name=name, models=models, dispatcher=context.dispatcher(models), test_fields={"basket": "none"},
            **more,
        )  # fmt: skip
        return Parts(outboxes=[part])

    sealed: dict[type[Document], list[str]] = {models.endpoint: ["secrets.sealed"]}
    return Service(name=name, summary="Sends.", documents=models.all, build=build, sealed=sealed)


async def _known_tree(tx: Transaction, endpoint: Endpoint) -> None:
    if endpoint.id.startswith("weed"):
        raise NotFoundError(f"no tree {endpoint.id!r}")


ORCHARD: Final = outbox_models("orchard")
HARBOUR: Final = outbox_models("harbour")
SERVICES: Final = (
    outbox_service("orchard", ORCHARD, event_types=["apple.picked"], check_endpoint=_known_tree),
    outbox_service("harbour", HARBOUR),
)


class Setting:
    """A runtime with both services, and what tests put into it."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime, self.store = runtime, runtime.store.tenant(TENANT)

    def by(self, role: str = "admin", *, user: str = "user:ann") -> Operator:
        return self.runtime.operator(Caller(user_id=user, roles={TENANT: role}), TENANT)

    def models(self, outbox: str) -> OutboxModels:
        return self.runtime.outboxes[outbox].models

    async def endpoint(self, outbox: str = "orchard", id: str = "tree-1", **fields: Any) -> Endpoint:
        given: dict[str, Any] = {
            "url": "https://tree.example/hook",
            "retry": RetryPolicy(waits_s=()),
            **fields,
        }
        made = self.models(outbox).endpoint(id=id, tenant_id=TENANT, created_at=AT, **given)
        made.secrets = [EndpointSecrets(self.runtime.vault).seal(made, new_secret())]
        await self.store.commit(create(made))
        return made

    async def deliver(self, endpoint: Endpoint, event_id: str, *, outbox: str = "orchard") -> str:
        """Put an event out to the endpoint; gives the id of its delivery."""
        event = Event(type="apple.picked", body=b"{}", id=event_id, fields={"basket": "b1"})
        (id,) = await Outbox(self.store, models=self.models(outbox)).send(event, [endpoint])
        return id

    async def kill(self, delivery_id: str, *, outbox: str = "orchard") -> None:
        """Make a delivery a dead letter, as a dispatcher does."""
        models = self.models(outbox)
        event_id, _, endpoint_id = delivery_id.partition("~")
        await self.move(delivery_id, "sending", outbox=outbox)
        await self.store.commit(
            patch(models.delivery, delivery_id, changes={"status": "dead", "next_attempt_at": None}),
            create(models.dead_letter(
                id=delivery_id, tenant_id=TENANT, event_id=event_id, endpoint_id=endpoint_id,
                event_type="apple.picked", reason="410", died_at=AT,
            )),
        )  # fmt: skip

    async def move(self, delivery_id: str, status: str, *, outbox: str = "orchard") -> None:
        await self.store.commit(patch(self.models(outbox).delivery, delivery_id, changes={"status": status}))

    async def status(self, delivery_id: str, *, outbox: str = "orchard") -> str:
        found = await self.store.get(self.models(outbox).delivery, delivery_id)
        assert found is not None
        return found.doc.status

    async def trail(self) -> list[tuple[str, str, str, str]]:
        """Action, actor, subject and outcome of each audit event, oldest first."""
        query = Query(AuditEvent).order_by("sequence")
        return [
            (one.doc.action, one.doc.actor, one.doc.subject, one.doc.outcome)
            async for one in self.store.scan(query)
        ]

    async def block_trail(self) -> None:
        """Set the trail's head back: the place of the next event is taken, so none can be written."""
        await self.runtime.audit(TENANT).append(AuditEntry(action="first", actor="cli:me"))
        await self.store.commit(put(AuditHead(tenant_id=TENANT)))


@contextlib.asynccontextmanager
async def opened(home: Path) -> AsyncIterator[Setting]:
    config = load_config({"home": home, "allow": "127.0.0.1"}, environ={})
    runtime = await Runtime.open(config, services=SERVICES)
    try:
        yield Setting(runtime)
    finally:
        await runtime.close()
