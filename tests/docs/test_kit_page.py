"""The example of shared rates on the kit's page runs as it is written."""

from __future__ import annotations

import ast
import asyncio
import re
from pathlib import Path
from typing import Any

from holdfast.config import load_config
from holdfast.kit.rate_limit import RateQuota
from holdfast.runtime import Runtime
from holdfast.service import Context, Parts, Service
from holdfast.testing import ManualClock

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "kit.md"


async def test_the_example_of_shared_rates_runs(tmp_path: Path, clock: ManualClock) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    (source,) = [block for block in blocks if "context.rate_limit" in block]
    names: dict[str, Any] = {"RateQuota": RateQuota}

    def build(context: Context) -> Parts:
        names["context"] = context
        return Parts()

    service = Service(name="chat", summary="Sends.", documents=(), build=build)
    config = load_config({"home": tmp_path}, environ={})
    runtime = await Runtime.open(config, services=[service], clock=clock)
    try:
        code = compile(source, str(PAGE), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        await eval(code, names)
        assert names["waited_s"] == 0.0
        # The same key again has to wait for its turn.
        again = asyncio.ensure_future(names["chats"].acquire("-100"))
        while not again.done():
            await clock.advance(0.1)
        assert await again > 0.5
    finally:
        await runtime.close()
