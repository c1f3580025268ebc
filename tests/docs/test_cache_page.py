"""The page on the cache: its example runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.app import open_store
from holdfast.testing import ManualClock

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "cache.md"


async def test_the_example_loads_once_and_again_after_a_clear(sqlite_url: str, clock: ManualClock) -> None:
    (source,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    example: Any = ModuleType("example")
    exec(compile(source, str(PAGE), "exec", dont_inherit=True), vars(example))
    store = await open_store(sqlite_url, example.DOCUMENTS, clock=clock)
    await store.migrate()

    async def ask_bank(currency: str) -> dict[str, float]:
        return {"USD": 1.1}

    shown = await example.show(store, ask_bank)
    assert shown == ["source", "memory", {"USD": 1.1, "EUR": 1.0}, "source", 2]
    await store.close()
