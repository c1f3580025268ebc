"""`/openapi.json` describes every route in words, with the media types and schemas of its answers."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.config import load_config
from holdfast.runtime import Runtime, find_services
from holdfast.server import compose
from tests.http.server_harness import ServerHarness

MEDIA_TYPES = {
    "/metrics": "text/plain",
    "/api/v1/audit/export": "application/jsonl",
    "/api/v1/changes": "text/event-stream",
    "/hackernews/api/v1/feed.rss": "application/rss+xml",
    "/renewals/api/v1/properties/{property_id}/renewal-risk.csv": "text/csv",
}


async def describe(home: Path, *names: str, at_root: bool = False) -> dict[str, Any]:
    services = [one for one in find_services() if not names or one.name in names]
    runtime = await Runtime.open(load_config({"home": home}, environ={}), services=services)
    try:
        described = compose(runtime, at_root=at_root).app.state.openapi()
    finally:
        await runtime.close()
    return dict(json.loads(json.dumps(described)))


def operations_of(described: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        yield from ((method, path, operation) for method, operation in methods.items())


def _faults(described: dict[str, Any]) -> Iterator[str]:
    tags = {tag["name"] for tag in described["tags"]}
    for method, path, operation in operations_of(described):
        name = f"{method} {path}"
        if not re.fullmatch(r"\w+", operation["operationId"]):
            yield f"{name}: id {operation['operationId']}"
        if not operation["summary"] or operation["summary"][0].islower() or len(operation["summary"]) > 110:
            yield f"{name}: summary {operation['summary']!r}"
        if operation["summary"] not in " ".join(operation["description"].split()):
            yield f"{name}: description {operation['description']!r}"
        if not set(operation["tags"]) <= tags:
            yield f"{name}: tags {operation['tags']}"
        declared = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        if declared != set(re.findall(r"\{(\w+)\}", path)):
            yield f"{name}: path parameters {declared}"
        for parameter in operation["parameters"]:
            if not parameter["description"] or "null" in json.dumps(parameter["schema"]):
                yield f"{name}: parameter {parameter['name']}"
        for status, answer in operation["responses"].items():
            if status < "300" and not all(one["schema"] for one in answer["content"].values()):
                yield f"{name}: {status} without a schema"


async def test_every_operation_is_named_and_described(tmp_path: Path) -> None:
    described = await describe(tmp_path)
    assert list(_faults(described)) == []
    operations = list(operations_of(described))
    assert len(operations) > 150
    ids = [operation["operationId"] for _, _, operation in operations]
    assert len(set(ids)) == len(ids)
    # One handler is at two paths.
    summaries = Counter(
        (*operation["tags"], operation["summary"])
        for _, path, operation in operations
        if path != "/hackernews/_ah/worker"
    )
    assert [summary for summary, count in summaries.items() if count > 1] == []
    titles = Counter(schema["title"] for schema in described["components"]["schemas"].values())
    assert [title for title, count in titles.items() if count > 1] == []


async def test_every_answer_has_its_media_type_and_every_reference_a_target(tmp_path: Path) -> None:
    described = await describe(tmp_path)
    for path, media_type in MEDIA_TYPES.items():
        assert list(described["paths"][path]["get"]["responses"]["200"]["content"]) == [media_type]
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(described))):
        target = described
        for word in reference.split("/"):
            target = target[word]
    for _, path, operation in operations_of(described):
        refused = described["components"]["responses"][operation["responses"]["404"]["$ref"].split("/")[-1]]
        (shape,) = (content["schema"]["$ref"] for content in refused["content"].values())
        assert shape.endswith("/GwiErrorResponse" if path.startswith("/gwi/") else "/ErrorResponse"), path


async def test_security_says_which_routes_are_public(tmp_path: Path) -> None:
    described = await describe(tmp_path)
    assert set(described["components"]["securitySchemes"]) == {"token", "session"}
    public = {path for _, path, operation in operations_of(described) if operation.get("security") == []}
    assert {"/health", "/health/ready", "/hackernews/api/v1/stories"} <= public
    assert not public & {"/metrics", "/api/v1/tokens", "/openapi.json", "/work/drain"}
    create = described["paths"]["/api/v1/tokens"]["post"]
    assert (
        "Needs the role `admin` in the tenant. A token needs the scope `tokens:create`."
        in create["description"]
    )


async def test_schemas_keep_the_bounds_that_the_decoder_checks(harness: ServerHarness) -> None:
    described = harness.surface.app.state.openapi()
    token = described["components"]["schemas"]["CreateToken"]
    assert token["description"].startswith("`scopes` are the most it may do")
    assert token["properties"]["scopes"]["items"] == {"type": "string"}
    assert {"type": "number", "exclusiveMinimum": 0} in token["properties"]["expiresInS"]["anyOf"]


async def test_a_service_at_the_root_is_described_at_the_root(tmp_path: Path) -> None:
    described = await describe(tmp_path, "renewals", at_root=True)
    assert "/api/v1/portfolio" in described["paths"]
    assert list(_faults(described)) == []


async def test_moments_are_described_as_such(tmp_path: Path) -> None:
    described = await describe(tmp_path)
    plain = [
        f"{name}.{field}"
        for name, schema in described["components"]["schemas"].items()
        for field, one in schema.get("properties", {}).items()
        if field.endswith("At")
        for kind in one.get("anyOf", [one])
        if kind.get("type") == "string" and kind.get("format") != "date-time"
    ]
    assert plain == []
