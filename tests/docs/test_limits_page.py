"""The example of the page on workflows and limits, served as it is written."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.service import Service
from tests.http.server_harness import serving

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "limits.md"
NAME = "prints_of_the_page"


@pytest.fixture
def prints() -> Iterator[Service]:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    module = sys.modules[NAME] = types.ModuleType(NAME)
    exec(compile(source, str(PAGE), "exec", dont_inherit=True), module.__dict__)
    yield module.service
    del sys.modules[NAME]


async def test_orders_beyond_the_plan_are_refused_and_the_others_are_printed(
    tmp_path: Path, prints: Service
) -> None:
    async with serving(tmp_path, services=[prints]) as harness:
        token = await harness.token("developer", tenant="acme")
        for title, expected in (("one", 201), ("two", 201), ("three", 429)):
            status, body, headers = await harness.ask("POST", f"/prints/posters/{title}", token=token)
            assert status == expected, body
        assert headers["retry-after"] == "30"
        assert body["error"] == "limit_reached"
        assert body["details"] == {"usage": 2, "limit": 2, "plan": "free"}
        await harness.runtime.runner.work_off()
        assert sorted(harness.runtime.parts["prints"].operations.printed) == ["one", "two"]
