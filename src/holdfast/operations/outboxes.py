"""The outboxes of a process, by name: the kit's own and those that services announce in `Parts.outboxes`."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import msgspec

from holdfast.errors import BadIdError, NotFoundError
from holdfast.kit import ALL_TENANTS
from holdfast.kit.outbox import DeadLetter, Deliveries, OutboxModels
from holdfast.model import Document
from holdfast.runtime import Runtime
from holdfast.service import OutboxPart
from holdfast.store import Query

ENDPOINTS_READ_MAX: Final = 500


def outbox_named(runtime: Runtime, name: str) -> OutboxPart:
    """Return one outbox or raise NotFoundError, naming those there are."""
    if name not in runtime.outboxes:
        raise NotFoundError(f"no outbox {name!r}; there are {', '.join(runtime.outboxes)}")
    return runtime.outboxes[name]


def deliveries_in(runtime: Runtime, tenant_id: str, outbox: str) -> Deliveries:
    """A tenant's deliveries and dead letters of one outbox, or all tenants'."""
    return Deliveries(runtime.store_of(tenant_id), models=outbox_named(runtime, outbox).models)


async def endpoint_tenant(
    runtime: Runtime, tenant_id: str, outbox: str, endpoint_id: str | None
) -> str | None:
    """The one tenant that a list over all is about once it names an endpoint; None where there is no such."""
    if tenant_id != ALL_TENANTS or endpoint_id is None:
        return tenant_id
    kind = outbox_named(runtime, outbox).models.endpoint
    with contextlib.suppress(BadIdError):
        stored = await runtime.store_of(tenant_id).get(kind, endpoint_id)
        return None if stored is None else stored.doc.tenant_id
    return None


async def endpoint_tenants(runtime: Runtime, outbox: str) -> list[str]:
    """Tenants with endpoints in an outbox, as far as the first of these tell."""
    query = Query(outbox_named(runtime, outbox).models.endpoint).limit(ENDPOINTS_READ_MAX)
    page = await runtime.store.privileged().query(query)
    return sorted({one.tenant_id for one in page.docs})


def own_fields(doc: Document, kind: type[Document]) -> dict[str, Any]:
    """The fields that a service's subclass of `kind` adds, by their stored names."""
    of_all = {field.name for field in msgspec.structs.fields(kind)}
    own = [field for field in msgspec.structs.fields(type(doc)) if field.name not in of_all]
    return {field.encode_name: msgspec.to_builtins(getattr(doc, field.name)) for field in own}


def unresolved(models: OutboxModels) -> Query[DeadLetter]:
    """The dead letters of an outbox that nobody has replayed or resolved, newest first."""
    return Query(models.dead_letter).where("resolved", "==", False).order_by("-died_at")


async def dead_letter_counts(runtime: Runtime, tenant_id: str = ALL_TENANTS) -> dict[str, int]:
    """Unresolved dead letters by outbox, of one tenant or of all."""
    store = runtime.store_of(tenant_id)
    return {name: await store.count(unresolved(one.models)) for name, one in runtime.outboxes.items()}
