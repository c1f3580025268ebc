"""A public response serves all strangers for a moment, and nobody is given what is another's."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Response
from litestar.params import FromPath

from holdfast.routing import read_route
from holdfast.service import Context, Parts, Service
from holdfast.testing import ManualClock
from tests.http.server_harness import ServerHarness, serving


def _service() -> Service:
    def build(context: Context) -> Parts:
        asked: dict[str, int] = {}

        @read_route("/{name:str}", "public", area="counts", prefix="", microcache_s=1.0)
        async def count(name: FromPath[str]) -> Response[Any]:
            asked[name] = asked.get(name, 0) + 1
            control = "private" if name == "private" else "public, no-cache"
            response = Response({name: asked[name]}, headers={"cache-control": control})
            if name == "cookie":
                response.set_cookie("a", "b")
            return Response({name: asked[name]}, status_code=404) if name == "missing" else response

        return Parts(routes=[count])

    return Service(name="counts", summary="Counts.", documents=[], build=build)


@pytest.fixture
async def harness(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServerHarness]:
    async with serving(tmp_path, services=[_service()], clock=clock) as made:
        yield made


async def _count(harness: ServerHarness, path: str = "page", **headers: str) -> int:
    _, body, _ = await harness.ask("GET", f"/counts/{path}", headers=headers)
    count: int = body[path.partition("?")[0]]
    return count


async def test_strangers_share_a_response_for_its_time_each_with_a_request_id(
    harness: ServerHarness, clock: ManualClock
) -> None:
    answers = [await harness.ask("GET", "/counts/page") for _ in range(3)]
    assert [body for _, body, _ in answers] == [{"page": 1}] * 3
    assert len({headers["x-request-id"] for _, _, headers in answers}) == 3
    assert {headers["x-content-type-options"] for _, _, headers in answers} == {"nosniff"}
    await clock.advance(1.0)
    assert await _count(harness) == 2
    _, metrics, _ = await harness.ask("GET", "/metrics", token=await harness.token("owner"))
    answered = re.findall(r'holdfast_http_requests_total\{.*"/counts/.*\} (.*)', metrics)
    assert answered == ["4.0"]


async def test_what_may_be_for_one_caller_alone_is_asked_for_anew(harness: ServerHarness) -> None:
    assert await _count(harness) == 1
    assert await _count(harness, cookie="counts_visitor=x") == 2
    assert await _count(harness, authorization="Bearer hf_x") == 3
    assert await _count(harness, **{"if-none-match": '"x"'}) == 4
    assert await _count(harness, "page?a=1") == 5
    assert await _count(harness) == 1


@pytest.mark.parametrize("name", ["private", "cookie", "missing"])
async def test_only_what_is_public_is_kept(harness: ServerHarness, name: str) -> None:
    assert [await _count(harness, name) for _ in range(2)] == [1, 2]


async def test_rate_limits_hold(tmp_path: Path, clock: ManualClock) -> None:
    limits = {"address_burst": 3, "address_per_s": 1.0}
    async with serving(tmp_path, services=[_service()], clock=clock, limits=limits) as harness:
        assert [(await harness.ask("GET", "/counts/page"))[0] for _ in range(4)] == [200, 200, 200, 429]
