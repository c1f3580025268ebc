"""The audit trails of a process, each by its name: list, verify, export."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.config import RESERVED_PREFIXES
from holdfast.errors import InvalidError, NotFoundError
from holdfast.kit import ALL_TENANTS
from holdfast.kit.audit import Audit, AuditFields, AuditModels, AuditOutcome
from holdfast.kit.audit.chain import ChainFault
from holdfast.model.limits import ALTERNATIVES_MAX
from holdfast.operations.outboxes import own_fields
from holdfast.projection import project
from holdfast.runtime import KIT_PART, Runtime, find_services
from holdfast.store import Query

HEADS_PER_PAGE: Final = 500


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One event of a trail; `fields` are those that a service's own class adds, by their stored names."""

    trail: str
    id: str
    tenant_id: str
    sequence: int
    at: datetime
    action: str
    actor: str
    subject: str
    outcome: AuditOutcome
    details: Any
    intent: str
    change_summary: str
    scope: str
    policy_approval: str
    evidence_text: str
    previous: str
    hash: str
    fields: dict[str, Any]


class AuditPage(msgspec.Struct, frozen=True):
    items: list[AuditRow]
    cursor: str | None


class AuditVerdict(msgspec.Struct, frozen=True):
    """`fault` says what is wrong with the first event that does not hold."""

    sound: bool
    events: int
    fault: ChainFault | None


def row(event: AuditFields, trail: str) -> AuditRow:
    return project(event, AuditRow, trail=trail, fields=own_fields(event, AuditFields))


def trail_named(runtime: Runtime, tenant_id: str, trail: str) -> Audit:
    """Return a tenant's trail or raise NotFoundError, naming those there are."""
    return runtime.audit(tenant_id, models=_models(runtime, trail))


def _models(runtime: Runtime, trail: str) -> AuditModels:
    if trail not in runtime.audits:
        raise NotFoundError(f"no audit trail {trail!r}; there are {', '.join(runtime.audits)}")
    return runtime.audits[trail].models


async def list_events(
    runtime: Runtime,
    tenant_id: str,
    trail: str = KIT_PART,
    *,
    action: str | None = None,
    actor: str | None = None,
    subject: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> AuditPage:
    """Events, newest first; of one action, one actor or one subject where that is given.

    An actor may be given without its prefix: `ann@acme.example` finds `user:ann@acme.example`.
    """
    given = {"action": action, "actor": actor, "subject": subject}
    filters = [(name, value) for name, value in given.items() if value]
    if len(filters) > 1:
        raise InvalidError("give one of action, actor and subject")
    order = "-at" if tenant_id == ALL_TENANTS else "-sequence"
    query = Query(_models(runtime, trail).event).order_by(order).limit(limit).after(cursor)
    for name, value in filters:
        alternatives = _actors(runtime, value) if name == "actor" else [value]
        query = query.where(name, "in", alternatives)
    page = await runtime.store_of(tenant_id).query(query)
    return AuditPage([row(event, trail) for event in page.docs], page.cursor)


def _actors(runtime: Runtime, name: str) -> list[str]:
    """The actors that somebody may mean by a name: with each prefix there is, or whole."""
    issuers = [one.user_prefix for one in runtime.config.oidc]
    # A command for the kit's own trail opens no service; theirs act there all the same.
    services = runtime.services or find_services()
    own = [prefix for one in services for prefix in (f"visitor:{one.name}:", *one.actor_prefixes)]
    prefixes = dict.fromkeys(["", *RESERVED_PREFIXES, *issuers, *own])
    return [prefix + name for prefix in prefixes][:ALTERNATIVES_MAX]


async def verify(runtime: Runtime, tenant_id: str, trail: str = KIT_PART) -> AuditVerdict:
    """Walk the whole chain; finds any change, gap, insertion, reorder, forged head or cut-off tail."""
    checkpoint = runtime.checkpoints.read().get((trail, tenant_id))
    verified = await trail_named(runtime, tenant_id, trail).verify(checkpoint)
    return AuditVerdict(verified.intact, verified.events, verified.fault)


def export(runtime: Runtime, tenant_id: str, trail: str = KIT_PART) -> AsyncIterator[bytes]:
    """The chain as JSON lines, oldest first."""
    return trail_named(runtime, tenant_id, trail).export()


async def check_trails(runtime: Runtime) -> list[tuple[str, str, ChainFault]]:
    """Return trail, tenant and fault of every trail whose head, or whose checkpoint, is not as it must be."""
    checkpoints = runtime.checkpoints.read()
    keys = {key for key in checkpoints if key[0] in runtime.audits}
    for name, part in runtime.audits.items():
        heads = runtime.store.privileged().scan(Query(part.models.head).limit(HEADS_PER_PAGE))
        keys |= {(name, head.doc.tenant_id) async for head in heads}
    faults = []
    for trail, tenant_id in sorted(keys):
        fault = await trail_named(runtime, tenant_id, trail).check(checkpoints.get((trail, tenant_id)))
        if fault is not None:
            faults.append((trail, tenant_id, fault))
    return faults
