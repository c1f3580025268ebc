"""Whether it lives, whether it can take work, and its figures."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from litestar import Request, Response
from litestar.datastructures import State

from holdfast import __version__
from holdfast.errors import RetryLaterError
from holdfast.http.dependencies import Whole
from holdfast.http.metrics import CONTENT_TYPE
from holdfast.routing import reads
from holdfast.service import Standing


class Pulse(msgspec.Struct, frozen=True):
    status: Standing
    version: str


class HealthReport(msgspec.Struct, frozen=True):
    """The whole truth, for those who may know it."""

    status: Standing
    version: str
    reasons: list[str]
    facts: dict[str, Any]


class Ready(msgspec.Struct, frozen=True):
    status: str


@reads("/health", "public", area="health", prefix="", limited=False)
async def pulse(runtime: Whole) -> Response[Pulse]:
    """How the process is doing, in a word. Why is at /api/v1/health."""
    status = (await runtime.health()).status
    return Response(Pulse(status, __version__), status_code=503 if status == "critical" else 200)


@reads("/health/ready", "public", area="health", prefix="", limited=False)
async def ready(state: State) -> Ready:
    """Whether the process can take work."""
    if not state.surface.ready:
        raise RetryLaterError("not ready yet, or stopping", after_s=1)
    return Ready("ready")


@reads("/health", "viewer", area="health", platform=True)
async def health(runtime: Whole) -> HealthReport:
    """How the parts are doing, with reasons."""
    found = await runtime.health()
    return HealthReport(found.status, __version__, list(found.reasons), dict(found.facts))


@reads("/metrics", "viewer", area="metrics", platform=True, prefix="", media_type=CONTENT_TYPE)
async def metrics(runtime: Whole, state: State) -> Response[bytes]:
    """Figures for Prometheus."""
    return Response(await state.surface.metrics.text(runtime))


@reads("/openapi.json", "viewer", area="openapi", prefix="")
async def openapi(request: Request[Any, Any, Any]) -> dict[str, Any]:
    """This description."""
    described: dict[str, Any] = request.app.state.openapi()
    return described


ROUTES: Final = (pulse, ready, health, metrics, openapi)
