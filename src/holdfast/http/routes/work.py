"""Work by request, for platforms on which nothing runs between requests."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from litestar.params import JSONBody
from msgspec import Meta

from holdfast.http.dependencies import RuntimeDependency
from holdfast.routing import call_route

DRAIN_S_MAX: Final = 300.0


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seconds: Annotated[float, Meta(gt=0, le=DRAIN_S_MAX)] = 10.0


class DrainResponse(msgspec.Struct, frozen=True):
    """`idle` when nothing that is due was left."""

    idle: bool
    seconds: float


@call_route(
    "/work/drain", "admin", area="work", action="drain", platform=True, prefix="",
    time_limit_s=DRAIN_S_MAX + 30,
)  # fmt: skip
async def drain(data: JSONBody[DrainRequest], runtime: RuntimeDependency) -> DrainResponse:
    """Run due work for a bounded time; ends sooner when nothing is left."""
    began = runtime.clock.monotonic()
    idle = await runtime.drain(data.seconds)
    return DrainResponse(idle, round(runtime.clock.monotonic() - began, 3))


ROUTES: Final = (drain,)
