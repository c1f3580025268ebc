"""The API as pages show it: operations by tag, and each with its parameters, fields and an example body.

Made of the description that `/openapi.json` gives; nothing here is known of routes otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from holdfast.errors import NotFoundError

# Deeper fields are in the description itself; a class may hold itself.
DEPTH_MAX: Final = 4
STREAM: Final = "text/event-stream"
_EXAMPLES: Final = {"string": "", "integer": 1, "number": 1.0, "boolean": False, "object": {}, "array": []}
_FORMATS: Final = {"date-time": "2026-11-15T12:00:00Z", "date": "2026-11-15"}


class ApiRow(msgspec.Struct, frozen=True):
    id: str
    method: str
    path: str
    summary: str


class ApiGroup(msgspec.Struct, frozen=True):
    """The operations of a service, or of an area of the platform."""

    tag: str
    description: str
    rows: list[ApiRow]


class ApiField(msgspec.Struct, frozen=True):
    """A field of a body: `items[].id` is that of each item."""

    path: str
    kind: str
    required: bool
    description: str


class ApiParameter(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    place: str
    kind: str
    required: bool
    repeated: bool
    description: str
    choices: list[str]
    default: str


class ApiAnswer(msgspec.Struct, frozen=True):
    status: str
    description: str
    media_types: list[str]
    fields: list[ApiField]


class ApiOperation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    tag: str
    method: str
    path: str
    summary: str
    paragraphs: list[str]
    parameters: list[ApiParameter]
    body: str | None
    fields: list[ApiField]
    answers: list[ApiAnswer]
    public: bool

    @property
    def endless(self) -> bool:
        """Whether its answer is a stream that goes on."""
        return any(STREAM in answer.media_types for answer in self.answers)


class ApiReference:
    """Reads one description.

    Example: `ApiReference(described).operation("tokens_create").path` gives `/api/v1/tokens`
    """

    def __init__(self, described: Mapping[str, Any]) -> None:
        self._described = described

    def groups(self, words: str = "") -> list[ApiGroup]:
        """The operations whose path, method or summary has all these words."""
        wanted = words.lower().split()
        groups = {
            tag["name"]: ApiGroup(tag["name"], tag.get("description", ""), [])
            for tag in self._described["tags"]
        }
        for row, operation in self._rows():
            text = f"{row.method} {row.path} {row.summary} {row.id}".lower()
            if all(word in text for word in wanted):
                groups[operation["tags"][0]].rows.append(row)
        return [group for group in groups.values() if group.rows]

    def operation(self, id: str) -> ApiOperation:
        """One operation, or NotFoundError."""
        for row, found in self._rows():
            if row.id == id:
                return self._operation(row, found)
        raise NotFoundError(f"There is no operation {id[:100]!r}. The list of the API shows those there are.")

    def _rows(self) -> Iterator[tuple[ApiRow, dict[str, Any]]]:
        for path, methods in self._described["paths"].items():
            for method, operation in methods.items():
                row = ApiRow(operation["operationId"], method.upper(), path, operation["summary"])
                yield row, operation

    def _operation(self, row: ApiRow, found: dict[str, Any]) -> ApiOperation:
        body = found.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        return ApiOperation(
            id=row.id, tag=found["tags"][0], method=row.method, path=row.path, summary=row.summary,
            paragraphs=[" ".join(one.split()) for one in found["description"].split("\n\n")],
            parameters=[self._parameter(one) for one in found["parameters"]],
            body=None if body is None else json.dumps(self.example(body), indent=2, ensure_ascii=False),
            fields=[] if body is None else list(self.fields(body)),
            answers=[self._answer(*one) for one in sorted(found["responses"].items())],
            public=found.get("security") == [],
        )  # fmt: skip

    def _parameter(self, found: dict[str, Any]) -> ApiParameter:
        schema = found["schema"]
        inner = schema.get("items", schema)
        return ApiParameter(
            name=found["name"], place=found["in"], kind=self.kind(schema), required=found["required"],
            repeated="items" in schema, description=found["description"],
            choices=[str(value) for value in inner.get("enum", [])],
            default=str(schema.get("default", "")),
        )  # fmt: skip

    def _answer(self, status: str, found: dict[str, Any]) -> ApiAnswer:
        answer = self._resolve(found)
        content = answer.get("content", {})
        schema = content.get("application/json", {}).get("schema")
        # Refusals have one shape, which the list of them need not repeat.
        fields = list(self.fields(schema)) if schema and status < "300" else []
        return ApiAnswer(status, answer["description"], list(content), fields)

    def _resolve(self, schema: dict[str, Any]) -> dict[str, Any]:
        if "$ref" not in schema:
            return schema
        target: Any = self._described
        for word in schema["$ref"].removeprefix("#/").split("/"):
            target = target[word]
        return dict(target)

    def _variants(self, schema: dict[str, Any]) -> list[dict[str, Any]]:
        """What a schema stands for, without null."""
        found = self._resolve(schema)
        variants = found.get("anyOf") or found.get("oneOf") or found.get("allOf") or [found]
        return [self._resolve(one) for one in variants if one.get("type") != "null"]

    def kind(self, schema: dict[str, Any]) -> str:
        """The type in a few words: `string or null`, `list of integer`, `a | b`, `TokenRow`."""
        kinds = [self._kind(one) for one in self._variants(schema)]
        null = {"type": "null"} in schema.get("anyOf", ())
        return " or ".join(dict.fromkeys([*kinds, *(["null"] if null else [])]))

    def _kind(self, schema: dict[str, Any]) -> str:
        if "enum" in schema:
            return " | ".join(map(str, schema["enum"]))
        if "prefixItems" in schema:
            return f"[{', '.join(map(self.kind, schema['prefixItems']))}]"
        if schema.get("type") == "array":
            return f"list of {self.kind(schema.get('items', {}))}"
        named = schema.get("title") or schema.get("format") or schema.get("type") or schema.get("const")
        return str(named or "anything")

    def fields(self, schema: dict[str, Any], path: str = "", depth: int = 1) -> Iterator[ApiField]:
        """The fields of a class and, to some depth, of the classes in it."""
        for variant in self._variants(schema):
            # A tuple has `prefixItems`, and `items` is false.
            if variant.get("type") == "array":
                yield from self.fields(variant.get("items") or {}, f"{path}[]", depth)
            for name, field in variant.get("properties", {}).items():
                whole = f"{path}.{name}".removeprefix(".")
                described = field.get("description") or ""
                yield ApiField(whole, self.kind(field), name in variant.get("required", ()), described)
                if depth < DEPTH_MAX:
                    yield from self.fields(field, whole, depth + 1)

    def example(self, schema: dict[str, Any], depth: int = 1) -> Any:
        """A body with what is required, to begin with."""
        variant = next(iter(self._variants(schema)), {})
        if "default" in schema or "default" in variant:
            return schema.get("default", variant.get("default"))
        if "enum" in variant or "const" in variant:
            return variant.get("const", next(iter(variant.get("enum", ())), None))
        if properties := variant.get("properties"):
            wanted = variant.get("required", ()) if depth < DEPTH_MAX else ()
            return {name: self.example(properties[name], depth + 1) for name in wanted}
        if "format" in variant:
            return _FORMATS.get(variant["format"], "")
        return _EXAMPLES.get(variant.get("type", ""))
