"""Accessibility of a page as axe-core judges it; `make test` installs it below .cache/."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.async_api import Page

AXE: Final = Path(__file__).parents[2] / ".cache" / "node_modules" / "axe-core" / "axe.min.js"


async def serious_findings(page: Page, request: pytest.FixtureRequest) -> list[str]:
    """The serious and critical findings on the page as it is now."""
    if not AXE.exists():
        reason = "axe-core is missing: npm install --prefix .cache --no-save axe-core@4"
        request.node.user_properties.append(("engine-missing", f"axe-core: {reason}"))
        if os.environ.get("CI") == "true":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    # By the debugger's protocol, so that the page's own policy for scripts stays as it is.
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = await page.evaluate("async () => (await axe.run()).violations")
    return [
        f"{one['id']}: {node['html'][:120]}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
