"""A request of the API is made and sent in the browser, as oneself and with a token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.browser.axe import serious_findings
from tests.browser.entering import sign_in
from tests.console.console_harness import console

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_token_is_created_in_the_explorer_and_used_there(
    page: Page, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    async with console(tmp_path) as harness:
        await sign_in(page, harness)
        await page.get_by_role("link", name="API", exact=True).click()
        assert await serious_findings(page, request) == []
        await page.get_by_role("link", name="POST /api/v1/tokens", exact=True).click()
        await page.get_by_role("textbox", name="body").fill(
            '{"name": "it\'s", "role": "viewer", "scopes": ["runs:read"]}'
        )
        await expect(page.get_by_label("With curl")).to_contain_text("'{\"name\": \"it'\\''s\"")
        await page.get_by_role("button", name="Send").click()
        await page.get_by_role("dialog").get_by_role("button", name="Send").click()
        answer = page.get_by_role("region", name="Answer", exact=True)
        await expect(answer).to_contain_text("200 OK")
        token = json.loads(await answer.locator("#answer-body").inner_text())["token"]

        await page.goto(f"{harness.address}/docs/runs_list_runs")
        await page.get_by_label("Token").fill(token)
        await page.get_by_label("limit").fill("7")
        await expect(page.get_by_label("With curl")).to_contain_text("/api/v1/runs?limit=7'")
        await page.get_by_role("button", name="Send").click()
        await expect(answer).to_contain_text('"items": []')
        await page.get_by_label("limit").fill("none")
        await page.get_by_role("button", name="Send").click()
        await expect(answer).to_contain_text("422")
        assert await serious_findings(page, request) == []
