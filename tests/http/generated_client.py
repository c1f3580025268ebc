"""A client made by openapi-python-client from `/openapi.json`, called by the ids of operations."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType

PACKAGE = "holdfast_generated_client"
# The generator knows no other texts.
OVERRIDES = {"application/jsonl": "text/plain", "application/rss+xml": "text/plain"}


def generate_client(described: dict[str, Any], folder: Path) -> list[str]:
    """Make the package importable; returns what the generator could not understand."""
    source = folder / "openapi.json"
    source.write_text(json.dumps(described))
    options = ConfigFile(post_hooks=[], content_type_overrides=OVERRIDES, package_name_override=PACKAGE)
    config = Config.from_sources(
        options, MetaType.NONE, source, file_encoding="utf-8", overwrite=False, output_path=folder / PACKAGE
    )
    faults = [f"{fault.header}: {fault.detail}" for fault in generate(config=config)]
    sys.path.insert(0, str(folder))
    return faults


class Operation(msgspec.Struct, frozen=True):
    """One operation of the description."""

    path: str
    method: str
    described: dict[str, Any]

    @property
    def id(self) -> str:
        return str(self.described["operationId"])

    @property
    def required(self) -> list[str]:
        return [one["name"] for one in self.described["parameters"] if one["required"]]

    def classes(self, status: int) -> list[str]:
        """The classes that an answer is declared as; none for a text, or JSON of any shape."""
        content = self.described["responses"][str(status)].get("content", {})
        return re.findall(r'"#/components/schemas/(\w+)"', json.dumps(content.get("application/json", {})))


class GeneratedClient:
    """Calls operations with a token; an answer that is not described, or not as it is described, fails."""

    def __init__(self, described: dict[str, Any], address: str, token: str) -> None:
        self.operations = {
            one["operationId"]: Operation(path, method, one)
            for path, methods in described["paths"].items()
            for method, one in methods.items()
        }
        self._models = importlib.import_module(f"{PACKAGE}.models")
        package = importlib.import_module(PACKAGE)
        self.client = package.AuthenticatedClient(address, token, raise_on_unexpected_status=True, timeout=60)

    def import_operation(self, id: str) -> Any:
        """The module of one operation."""
        tag = self.operations[id].described["tags"][0].replace("-", "_")
        return importlib.import_module(f"{PACKAGE}.api.{tag}.{id}")

    async def call(self, id: str, /, *, body: dict[str, Any] | None = None, **given: Any) -> tuple[int, Any]:
        """Status and parsed answer."""
        function = self.import_operation(id).asyncio_detailed
        if body is not None:
            kind = inspect.signature(function).parameters["body"].annotation
            given["body"] = kind.from_dict(body)
        answer = await function(client=self.client, **given)
        status = int(answer.status_code)
        self._check(id, status, answer.parsed, answer.content)
        return status, answer.parsed

    async def act(self, id: str, /, **given: Any) -> Any:
        """The parsed answer of a call that succeeds."""
        status, parsed = await self.call(id, **given)
        assert status < 300, (id, parsed)
        return parsed

    def _check(self, id: str, status: int, parsed: Any, content: bytes) -> None:
        if status >= 300:
            assert type(parsed).__name__.endswith("ErrorResponse"), (id, status, content)
            return
        names = self.operations[id].classes(status)
        classes = tuple(getattr(self._models, name) for name in names)
        assert isinstance(parsed, classes or (str, object)), (id, status, parsed)
        assert parsed is not None, (id, status, content)
        assert list(_undeclared(parsed)) == [], (id, content[:500])


def _undeclared(value: Any, path: str = "") -> Iterator[str]:
    """Fields of an answer that its class does not declare."""
    if isinstance(value, list):
        for one in value:
            yield from _undeclared(one, f"{path}[]")
    fields = [one.name for one in getattr(type(value), "__attrs_attrs__", ())]
    for name in fields:
        if name == "additional_properties" and len(fields) > 1:
            yield from (f"{path}.{key}" for key in value.additional_properties)
        else:
            yield from _undeclared(getattr(value, name), f"{path}.{name}")
