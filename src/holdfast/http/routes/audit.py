"""Routes for the audit trails."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.params import QueryParameter
from litestar.response import Stream

from holdfast.http.dependencies import RuntimeDependency
from holdfast.operations import audit
from holdfast.operations.audit import AuditPage, AuditVerdict
from holdfast.routing import Cursor, Limit, TenantId, call_route, read_route
from holdfast.runtime import KIT_PART

_VERIFY_S: Final = 300
_Trail = Annotated[
    str, QueryParameter(description="The trail: the kit's own, or a service's.", max_length=200)
]
_Filter = Annotated[
    str | None, QueryParameter(description="One of action, actor and subject.", max_length=1_000)
]
# By another name, because `actor` is who calls.
_Actor = Annotated[
    str | None,
    QueryParameter(
        name="actor",
        description="One of action, actor and subject; an actor's prefix may be left out.",
        max_length=1_000,
    ),
]


@read_route("/audit", "admin", area="audit", all_tenants=True)
async def list_events(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    trail: _Trail = KIT_PART,
    action: _Filter = None,
    done_by: _Actor = None,
    subject: _Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> AuditPage:
    """Events, newest first."""
    return await audit.list_events(
        runtime, tenant_id, trail, action=action, actor=done_by, subject=subject, limit=limit, cursor=cursor
    )


@call_route("/audit/verify", "admin", area="audit", action="verify", time_limit_s=_VERIFY_S)
async def verify(runtime: RuntimeDependency, tenant_id: TenantId, trail: _Trail = KIT_PART) -> AuditVerdict:
    """Walk the whole chain; finds any change, gap, insertion, reorder or cut-off tail."""
    return await audit.verify(runtime, tenant_id, trail)


@read_route(
    "/audit/export", "admin", area="audit", action="export", media_type="application/jsonl",
    time_limit_s=_VERIFY_S,
)  # fmt: skip
async def export(runtime: RuntimeDependency, tenant_id: TenantId, trail: _Trail = KIT_PART) -> Stream:
    """The chain as JSON lines, oldest first."""
    return Stream(audit.export(runtime, tenant_id, trail), media_type="application/jsonl")


ROUTES: Final = (list_events, verify, export)
