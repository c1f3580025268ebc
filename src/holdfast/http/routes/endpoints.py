"""Routes for endpoints, over all outboxes."""

from __future__ import annotations

from typing import Annotated, Final

from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from holdfast.http.dependencies import OutboxName, RuntimeDependency
from holdfast.idempotent_route import REPEATABLE
from holdfast.kit.outbox import Report
from holdfast.kit.outbox.models import EndpointStatus
from holdfast.operations import endpoints
from holdfast.operations.deliveries import DeliveryRow
from holdfast.operations.endpoints import (
    DeletedEndpoint,
    EndpointDetail,
    EndpointPage,
    EndpointRow,
    EndpointSettings,
    NewEndpoint,
    Reason,
    StateChange,
)
from holdfast.routing import (
    By,
    Cursor,
    Limit,
    RequestBody,
    TenantId,
    action_route,
    delete_route,
    put_route,
    read_route,
)
from holdfast.runtime import KIT_PART

EndOthers = Annotated[bool, QueryParameter(description="End every other secret at once: one has leaked.")]
_ENDPOINT: Final = "/endpoints/{outbox:str}/{endpoint_id:str}"


class StateChangeRequest(RequestBody, frozen=True):
    """`reason` is shown with the endpoint and its notices."""

    reason: Reason = ""


class ReplaySkippedRequest(RequestBody, frozen=True):
    """Without `dryRun: false` the response only says what would happen."""

    dry_run: bool = True


@read_route("/endpoints", "developer", area="endpoints", all_tenants=True)
async def list_endpoints(
    runtime: RuntimeDependency,
    tenant_id: TenantId,
    outbox: OutboxName = KIT_PART,
    status: FromQuery[EndpointStatus | None] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> EndpointPage:
    """Endpoints of one outbox, newest first; never with a secret."""
    return await endpoints.list_endpoints(
        runtime, tenant_id, outbox, status=status, limit=limit, cursor=cursor
    )


@read_route(_ENDPOINT, "developer", area="endpoints", all_tenants=True)
async def get_endpoint(
    runtime: RuntimeDependency, tenant_id: TenantId, outbox: FromPath[str], endpoint_id: FromPath[str]
) -> EndpointDetail:
    """One endpoint with its notices; never with a secret."""
    return await endpoints.get(runtime, tenant_id, outbox, endpoint_id)


@action_route("/endpoints/{outbox:str}", endpoints.create, status=201)
async def create_endpoint(
    runtime: RuntimeDependency, by: By, outbox: FromPath[str], data: JSONBody[NewEndpoint]
) -> EndpointRow:
    """Create an endpoint; its secret is shown this once."""
    return await endpoints.create(runtime, by, outbox, data)


@put_route(_ENDPOINT, endpoints.update)
async def update_endpoint(
    runtime: RuntimeDependency,
    by: By,
    outbox: FromPath[str],
    endpoint_id: FromPath[str],
    data: JSONBody[EndpointSettings],
) -> EndpointRow:
    """Change where an endpoint sends, what and how fast."""
    return await endpoints.update(runtime, by, outbox, endpoint_id, data)


@delete_route(_ENDPOINT, endpoints.delete)
async def delete_endpoint(
    runtime: RuntimeDependency, by: By, outbox: FromPath[str], endpoint_id: FromPath[str]
) -> DeletedEndpoint:
    """Disable an endpoint, cancel what waits for it, delete it; refused while something is being sent."""
    return await endpoints.delete(runtime, by, outbox, endpoint_id)


@action_route(f"{_ENDPOINT}/rotate", endpoints.rotate)
async def rotate_secret(
    runtime: RuntimeDependency,
    by: By,
    outbox: FromPath[str],
    endpoint_id: FromPath[str],
    end_others: EndOthers = False,
) -> EndpointRow:
    """Give an endpoint a fresh secret, shown this once; the old one signs too for a day."""
    return await endpoints.rotate(runtime, by, outbox, endpoint_id, end_others=end_others)


@action_route(f"{_ENDPOINT}/test", endpoints.send_test)
async def send_test(
    runtime: RuntimeDependency, by: By, outbox: FromPath[str], endpoint_id: FromPath[str]
) -> DeliveryRow:
    """Send a `holdfast.test` event to this endpoint alone."""
    return await endpoints.send_test(runtime, by, outbox, endpoint_id)


@action_route(f"{_ENDPOINT}/replay-skipped", endpoints.replay_skipped, idempotent=REPEATABLE)
async def replay_skipped(
    runtime: RuntimeDependency,
    by: By,
    outbox: FromPath[str],
    endpoint_id: FromPath[str],
    data: JSONBody[ReplaySkippedRequest],
) -> Report:
    """Send what was skipped while the endpoint was disabled, at most a thousand at a time."""
    return await endpoints.replay_skipped(runtime, by, outbox, endpoint_id, dry_run=data.dry_run)


def _state_route(verb: str, change: StateChange) -> HTTPRouteHandler:
    async def route(
        runtime: RuntimeDependency,
        by: By,
        outbox: FromPath[str],
        endpoint_id: FromPath[str],
        data: JSONBody[StateChangeRequest],
    ) -> EndpointRow:
        return await change(runtime, by, outbox, endpoint_id, reason=data.reason)

    route.__name__, route.__doc__ = f"{verb}_endpoint", change.__doc__
    return action_route(f"{_ENDPOINT}/{verb}", change)(route)


ROUTES: Final = (
    list_endpoints, get_endpoint, create_endpoint, update_endpoint, delete_endpoint, rotate_secret, send_test,
    replay_skipped,
    _state_route("pause", endpoints.pause), _state_route("resume", endpoints.resume),
    _state_route("disable", endpoints.disable), _state_route("enable", endpoints.enable),
)  # fmt: skip
