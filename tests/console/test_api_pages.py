"""The API explorer at `/docs`: complete, for those who may read the description, without foreign assets."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.console.api_reference import ApiReference
from holdfast.runtime import find_services
from tests.console.console_harness import ConsoleHarness, console


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ConsoleHarness]:
    services = [one for one in find_services() if one.name in ("renewals", "gwi")]
    async with console(tmp_path, services=services) as made:
        yield made


async def test_every_operation_is_listed_and_has_a_page_of_its_own(harness: ConsoleHarness) -> None:
    vic = await harness.signed_in("vic", role="viewer")
    text = await vic.page("/docs")
    described = harness.surface.app.state.openapi()
    operations = [one for methods in described["paths"].values() for one in methods.values()]
    assert len(operations) > 100
    for operation in operations:
        assert f'href="/docs/{operation["operationId"]}"' in text
    for operation in operations[:: len(operations) // 25]:
        page = await vic.page(f"/docs/{operation['operationId']}")
        assert all(f'name="{one["name"]}"' in page for one in operation["parameters"])
    assert 'aria-current="page">API</a>' in text


async def test_a_page_shows_parameters_fields_an_example_and_who_may_call(harness: ConsoleHarness) -> None:
    vic = await harness.signed_in("vic", role="viewer")
    page = await vic.page("/docs/tokens_create")
    assert "POST" in page
    assert "/api/v1/tokens" in page
    assert "Needs the role `admin` in the tenant." in page
    example = re.search(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)
    assert example is not None
    assert json.loads(example[1].replace("&#34;", '"')) == {"name": "", "role": "admin"}
    assert "<code>expiresInS</code>" in page
    page = await vic.page("/docs/runs_list_runs")
    assert "<option>failed</option>" in page
    assert "<code>items[].steps[].name</code>" in page


async def test_an_answer_without_end_is_described_and_not_tried(harness: ConsoleHarness) -> None:
    page = await (await harness.signed_in("vic", role="viewer")).page("/docs/changes")
    assert "curl -N" in page
    assert 'id="token"' not in page


async def test_words_narrow_the_list(harness: ConsoleHarness) -> None:
    vic = await harness.signed_in("vic", role="viewer")
    found = await vic.page("/docs?q=post%20tokens")
    assert set(re.findall(r'href="/docs/(\w+)"', found)) == {"tokens_create", "tokens_revoke"}
    assert "No operation has these words" in await vic.page("/docs?q=nonsense")
    assert "There is no operation" in await vic.page("/docs/nonsense", 404)


async def test_strangers_sign_in_first_and_pages_load_nothing_from_elsewhere(harness: ConsoleHarness) -> None:
    for path in ("/docs", "/docs/tokens_create"):
        status, _, headers = await harness.visitor().ask("GET", path)
        assert (status, headers["location"]) == (303, f"/sign-in?next={path.replace('/', '%2F')}")
    ann = await harness.signed_in("ann")
    for path in ("/docs", "/docs/tokens_create"):
        _, page, headers = await ann.ask("GET", path)
        assert "script-src 'self'" in headers["content-security-policy"]
        assert all(
            url.startswith("/assets/") for url in re.findall(r'(?:src|stylesheet" href)="([^"]*)"', page)
        )
        assert not re.search(r"<script(?![^>]*src=)|style=| on\w+=", page)


async def test_a_service_that_is_served_alone_is_shown_at_the_root(tmp_path: Path) -> None:
    services = [one for one in find_services() if one.name == "renewals"]
    async with console(tmp_path, services=services, at_root=True) as harness:
        vic = await harness.signed_in("vic", role="viewer")
        assert "<code>/api/v1/portfolio</code>" in await vic.page("/docs?q=portfolio")
        assert "/api/v1/portfolio" in await vic.page("/docs/renewals_portfolio")


async def test_every_example_has_what_is_required(harness: ConsoleHarness) -> None:
    described = harness.surface.app.state.openapi()
    reference = ApiReference(described)
    for methods in described["paths"].values():
        for operation in methods.values():
            shown = reference.operation(operation["operationId"])
            if shown.body is not None:
                needed = {one.path for one in shown.fields if one.required and "." not in one.path}
                assert needed <= set(json.loads(shown.body))


def test_a_tuple_is_described_by_the_types_of_its_places() -> None:
    pair = {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False}
    facts = {"type": "object", "properties": {"facts": {"type": "array", "items": pair}}}
    (field,) = ApiReference({"paths": {}}).fields(facts)
    assert (field.path, field.kind) == ("facts", "list of [string, integer]")
