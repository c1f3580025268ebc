"""The outboxes of a process, by name: the kit's own and those that services announce in `Parts.outboxes`."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import NotFoundError
from holdfast.kit.outbox import DeadLetter, Deliveries, OutboxModels
from holdfast.model import Document
from holdfast.runtime import Runtime
from holdfast.service import OutboxPart
from holdfast.store import Query


def outbox_named(runtime: Runtime, name: str) -> OutboxPart:
    """Return one outbox or raise NotFoundError, naming those there are."""
    if name not in runtime.outboxes:
        raise NotFoundError(f"no outbox {name!r}; there are {', '.join(runtime.outboxes)}")
    return runtime.outboxes[name]


def deliveries_in(runtime: Runtime, tenant_id: str, outbox: str) -> Deliveries:
    """A tenant's deliveries and dead letters of one outbox."""
    return Deliveries(runtime.store.tenant(tenant_id), models=outbox_named(runtime, outbox).models)


def own_fields(doc: Document, kind: type[Document]) -> dict[str, Any]:
    """The fields that a service's subclass of `kind` adds, by their stored names."""
    of_all = {field.name for field in msgspec.structs.fields(kind)}
    own = [field for field in msgspec.structs.fields(type(doc)) if field.name not in of_all]
    return {field.encode_name: msgspec.to_builtins(getattr(doc, field.name)) for field in own}


def unresolved(models: OutboxModels) -> Query[DeadLetter]:
    """The dead letters of an outbox that nobody has replayed or resolved, newest first."""
    return Query(models.dead_letter).where("resolved", "==", False).order_by("-died_at")


async def dead_letter_counts(runtime: Runtime, tenant_id: str | None = None) -> dict[str, int]:
    """Unresolved dead letters by outbox, of one tenant or of all."""
    store = runtime.store.privileged() if tenant_id is None else runtime.store.tenant(tenant_id)
    return {name: await store.count(unresolved(one.models)) for name, one in runtime.outboxes.items()}
