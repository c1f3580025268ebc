"""The example of the page on idempotent routes, served as it is written."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from holdfast.store import Query
from tests.http.server_harness import serving

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "idempotency.md"


async def test_a_payment_is_made_once_for_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    module = types.ModuleType("payments_page")
    monkeypatch.setitem(sys.modules, "payments_page", module)
    exec(compile(source, str(PAGE), "exec", dont_inherit=True), vars(module))
    page = vars(module)
    async with serving(tmp_path, services=[page["service"]]) as harness:
        token = await harness.token("developer")
        answers = [
            await harness.ask(
                "POST", "/payments/api/v1/payments", token=token, json={"cents": 700},
                headers={"Idempotency-Key": "invoice-7"},
            )
            for _ in range(2)
        ]  # fmt: skip
        assert await harness.runtime.store.privileged().count(Query(page["Payment"])) == 1
    (first, again) = answers
    assert (first[0], again[0], first[1]) == (201, 201, again[1])
    assert ("Idempotency-Replayed" in first[2], again[2]["Idempotency-Replayed"]) == (False, "true")
