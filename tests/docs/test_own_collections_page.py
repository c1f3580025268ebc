"""The service of the page on own collections works as it is written."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from holdfast.config import load_config
from holdfast.operations import audit, usage
from holdfast.runtime import Runtime

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "own-collections.md"


async def test_the_service_of_the_page_is_shown_by_the_platform(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    module = types.ModuleType("reviews_page")
    monkeypatch.setitem(sys.modules, "reviews_page", module)
    exec(compile(source, str(PAGE), "exec", dont_inherit=True), vars(module))
    config = load_config({"home": tmp_path}, environ={})
    runtime = await Runtime.open(config, services=[vars(module)["service"]])
    try:
        for number in range(2):
            await runtime.parts["reviews"].operations(f"run-{number}", "acme")
        page = await audit.list_events(runtime, "acme", "reviews")
        assert [(one.action, one.fields) for one in page.items] == [
            ("run_completed", {"runId": "run-1"}), ("run_completed", {"runId": "run-0"}),
        ]  # fmt: skip
        assert (await audit.verify(runtime, "acme", "reviews")).events == 2
        assert (await usage.sums(runtime, "acme", "reviews")).metrics == {"runs": 2}
        assert (await usage.sums(runtime, "acme")).metrics == {}
    finally:
        await runtime.close()
