"""Whether it lives, whether it can take work, and its figures."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.datastructures import State

from holdfast import __version__
from holdfast.errors import RetryLaterError
from holdfast.http.dependencies import RuntimeDependency
from holdfast.http.metrics import CONTENT_TYPE
from holdfast.routing import read_route
from holdfast.service import HealthStatus


class HealthSummary(msgspec.Struct, frozen=True):
    status: HealthStatus
    version: str


class HealthReport(msgspec.Struct, frozen=True):
    """The whole truth, for those who may know it."""

    status: HealthStatus
    version: str
    reasons: list[str]
    facts: dict[str, Any]


class Ready(msgspec.Struct, frozen=True):
    status: str


@read_route("/health", "public", area="health", prefix="", limited=False, answers={503: HealthSummary})
async def pulse(runtime: RuntimeDependency) -> Response[HealthSummary]:
    """How the process is doing, in a word. Why is at /api/v1/health."""
    status = (await runtime.health()).status
    return Response(HealthSummary(status, __version__), status_code=503 if status == "critical" else 200)


@read_route("/health/ready", "public", area="health", prefix="", limited=False)
async def ready(state: State) -> Ready:
    """Whether the process can take work."""
    if not state.surface.ready:
        raise RetryLaterError("not ready yet, or stopping", after_s=1)
    return Ready("ready")


@read_route("/health", "viewer", area="health", platform=True)
async def health(runtime: RuntimeDependency) -> HealthReport:
    """How the parts are doing, with reasons."""
    found = await runtime.health()
    return HealthReport(found.status, __version__, list(found.reasons), dict(found.facts))


@read_route("/metrics", "viewer", area="metrics", platform=True, prefix="", media_type=CONTENT_TYPE)
async def metrics(runtime: RuntimeDependency, state: State) -> Response[bytes]:
    """Figures for Prometheus."""
    return Response(await state.surface.metrics.text(runtime))


@read_route("/openapi.json", "viewer", area="openapi", prefix="")
async def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """This description."""
    described: dict[str, Any] = request.app.state.openapi()
    return described


ROUTES: Final = (pulse, ready, health, metrics, openapi)
