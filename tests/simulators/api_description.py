"""Holds calls and answers against Google's own discovery documents, which nobody here wrote."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import date, datetime
from importlib.resources import files
from typing import Any
from urllib.parse import unquote

from holdfast.simulators.server import RecordedCall

Json = dict[str, Any]


class Description:
    """One API's discovery document: which calls there are, and what travels in them."""

    def __init__(self, name: str) -> None:
        documents = files("googleapiclient.discovery_cache.documents")
        self.document: Json = json.loads(documents.joinpath(f"{name}.json").read_text())
        self._schemas: Json = self.document["schemas"]
        self._methods = list(_methods(self.document))
        self._prefix = "/" + self.document["servicePath"]

    def schema(self, name: str) -> Json:
        found: Json = self._schemas[name]
        return found

    def method_of(self, call: RecordedCall) -> Json:
        """The one method whose path and verb this call has."""
        fitting = [method for method in self._methods if self._fits(method, call)]
        literal = [
            method for method in fitting if unquote(call.path).endswith(method["path"].rpartition("}")[2])
        ]
        assert literal, f"{call.method} {call.path} is no call of this API"
        return max(literal, key=lambda method: len(method["path"].rpartition("}")[2]))

    def check(self, call: RecordedCall) -> str:
        """The method's id; raises AssertionError where the call or its answer is not as described."""
        method = self.method_of(call)
        self._check_parameters(method, call)
        if "request" in method:
            self.check_value(json.loads(call.body), method["request"], at="request")
        else:
            assert not call.body, f"{method['id']} takes no body"
        if 200 <= call.status < 300:
            self._check_answer(method, call)
        return str(method["id"])

    def _fits(self, method: Json, call: RecordedCall) -> bool:
        pattern = re.sub(r"\\\{[^}]+\\\}", "[^/]+", re.escape(self._prefix + method["path"]))
        return method["httpMethod"] == call.method and re.fullmatch(pattern, call.path) is not None

    def _check_parameters(self, method: Json, call: RecordedCall) -> None:
        known = method.get("parameters", {}) | self.document["parameters"]
        names = [name for name, _ in call.query]
        for name, value in call.query:
            assert name in known, f"{method['id']} has no parameter {name}"
            assert known[name]["location"] == "query", f"{name} does not belong in the query"
            assert known[name].get("repeated") or names.count(name) == 1, f"{name} is given more than once"
            _check_text(value, known[name], at=name)
        required = {name for name, one in known.items() if one.get("required") and one["location"] == "query"}
        assert required <= set(names), f"{method['id']} lacks {required - set(names)}"

    def _check_answer(self, method: Json, call: RecordedCall) -> None:
        if "response" in method:
            self.check_value(json.loads(call.answer), method["response"], at="answer")
        else:
            assert not call.answer, f"{method['id']} answers nothing"

    def check_value(self, value: object, schema: Json, *, at: str) -> None:
        """Raise AssertionError where the value is not what the schema says."""
        schema = self._schemas[schema["$ref"]] if "$ref" in schema else schema
        kind = schema.get("type", "any")
        if kind == "object":
            assert isinstance(value, dict), f"{at} is no object"
            self._check_object(value, schema, at=at)
        elif kind == "array":
            assert isinstance(value, list), f"{at} is no list"
            for index, item in enumerate(value):
                self.check_value(item, schema["items"], at=f"{at}[{index}]")
        elif kind != "any":
            _check_plain(value, schema, at=at)

    def _check_object(self, value: Json, schema: Json, *, at: str) -> None:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            described = properties.get(name, others)
            assert described is not None, f"{at} has a field {name} that is not described"
            self.check_value(item, described, at=f"{at}.{name}")


def _methods(described: Json) -> Iterator[Json]:
    yield from described.get("methods", {}).values()
    for resource in described.get("resources", {}).values():
        yield from _methods(resource)


def _check_plain(value: object, schema: Json, *, at: str) -> None:
    models: dict[str, tuple[type, ...]] = {
        "string": (str,),
        "boolean": (bool,),
        "integer": (int,),
        "number": (int, float),
    }
    wanted = models[schema["type"]]
    assert isinstance(value, wanted), f"{at} is no {schema['type']}: {value!r}"
    assert bool in wanted or not isinstance(value, bool), f"{at} is a boolean"
    _check_text(value, schema, at=at)


def _check_text(value: object, schema: Json, *, at: str) -> None:
    text = str(value)
    if "enum" in schema:
        assert text in schema["enum"], f"{at} is none of {schema['enum']}: {text}"
    if schema["type"] == "boolean":
        assert text.lower() in ("true", "false"), f"{at} is no boolean: {text}"
    if schema["type"] == "integer" or schema.get("format") in ("int64", "int32"):
        assert re.fullmatch(r"-?\d+", text), f"{at} is no whole number: {text}"
        assert int(text) >= int(schema.get("minimum", text)), f"{at} is too small: {text}"
    if schema.get("format") == "date-time":
        assert datetime.fromisoformat(text).tzinfo is not None, f"{at} has no offset: {text}"
    if schema.get("format") == "date":
        assert date.fromisoformat(text).isoformat() == text, f"{at} is no day: {text}"
