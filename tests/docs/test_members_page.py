"""The example of the page on members, served as it is written."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import SystemClock
from holdfast.service import Service
from tests.http.issuer import issuing
from tests.http.server_harness import serving

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "members.md"


@pytest.fixture
def circles() -> Iterator[Service]:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    # Types of routes and documents are looked up in the module they are written in.
    module = sys.modules["circles_of_the_page"] = types.ModuleType("circles_of_the_page")
    exec(compile(source, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    yield module.service
    del sys.modules["circles_of_the_page"]


async def test_people_found_circles_and_read_those_they_belong_to(tmp_path: Path, circles: Service) -> None:
    async with (
        issuing(SystemClock()) as issuer,
        serving(tmp_path, services=[circles], oidc=[issuer.settings(allow=())]) as harness,
    ):
        ann, bob = (issuer.token(email=f"{name}@people.example") for name in ("ann", "bob"))

        async def ask(method: str, path: str, token: str, **more: Any) -> tuple[int, Any]:
            status, body, _ = await harness.ask(method, f"/circles/api/v1{path}", token=token, **more)
            return status, body

        assert await ask("GET", "/me", bob) == (200, {"user": "oidc:bob@people.example"})
        assert (await ask("POST", "/circles", ann, json={"id": "chess"}))[0] == 200
        assert await ask("GET", "/circles/chess/posts", ann) == (200, ["Welcome"])
        assert [(await ask("GET", f"/circles/{one}/posts", bob))[0] for one in ("chess", "none")] == [
            403,
            403,
        ]
        invited = {"id": "oidc:bob@people.example"}
        assert (await ask("POST", "/circles/chess/members", bob, json=invited))[0] == 403
        assert (await ask("POST", "/circles/chess/members", ann, json=invited))[0] == 200
        assert await ask("GET", "/circles/chess/posts", bob) == (200, ["Welcome"])
        assert (await ask("POST", "/circles", bob, json={"id": "chess"}))[0] == 409
