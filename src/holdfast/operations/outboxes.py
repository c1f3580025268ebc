"""The outboxes of a process, by name: the kit's own and those that services announce in `Parts.outboxes`."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.errors import NotFoundError
from holdfast.kit.outbox import Deliveries
from holdfast.model import Document
from holdfast.runtime import Runtime
from holdfast.service import OutboxPart


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
