"""JSON Schemas of what routes take and give, by msgspec, which also decodes and encodes it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, get_args

import msgspec
from litestar.handlers import HTTPRouteHandler
from litestar.typing import FieldDefinition
from msgspec import inspect

_PLACE: Final = "#/components/schemas/{name}"


class Schemas:
    """The schemas of all classes that routes name, with the docstrings of the classes as descriptions.

    The framework's own lose bounds of optional fields, and take the end of `tuple[str, ...]` for a type.
    """

    def __init__(self, handlers: Iterable[HTTPRouteHandler], errors: Iterable[Any]) -> None:
        found = dict.fromkeys(kind for handler in handlers for kind in _classes(handler))
        kinds = list(found | dict.fromkeys(errors))
        references, self.components = msgspec.json.schema_components(kinds, ref_template=_PLACE)
        _TimeFormats(self.components).add(kinds)
        self._references = dict(zip(kinds, references, strict=True))

    def of(self, kind: Any) -> dict[str, Any]:
        """The reference to a class's schema, or to those of several: `A | B`."""
        kinds = get_args(kind) or (kind,)
        found = [self._references[one] for one in kinds]
        return found[0] if len(found) == 1 else {"anyOf": found}


def _classes(handler: HTTPRouteHandler) -> Iterator[Any]:
    signature = handler.parsed_fn_signature
    yield from _structs(signature.return_type)
    if body := signature.parameters.get("data"):
        yield from _structs(body)
    for kind in (handler.opt.get("body"), *handler.opt.get("answers", {}).values()):
        yield from get_args(kind) or ([kind] if kind else [])


def _structs(field: FieldDefinition) -> Iterator[Any]:
    if isinstance(field.annotation, type) and issubclass(field.annotation, msgspec.Struct):
        yield field.annotation
    for inner in field.inner_types:
        yield from _structs(inner)


class _TimeFormats:
    """Adds `format: date-time` to the moments in schemas, which msgspec leaves out where any zone will do."""

    def __init__(self, components: dict[str, Any]) -> None:
        self._components, self._seen = components, set[type]()

    def add(self, kinds: Iterable[Any]) -> None:
        for found in inspect.multi_type_info(kinds):
            self._visit(found)

    def _visit(self, found: inspect.Type) -> None:
        if isinstance(found, inspect.StructType) and found.cls not in self._seen:
            self._seen.add(found.cls)
            properties = self._components.get(found.cls.__name__, {}).get("properties", {})
            for field in found.fields:
                _mark(properties.get(field.encode_name, {}), field.type)
                self._visit(field.type)
        for inner in _inner(found):
            self._visit(inner)


def _inner(found: inspect.Type) -> Sequence[inspect.Type]:
    if isinstance(found, inspect.UnionType):
        return found.types
    if isinstance(found, inspect.DictType):
        return (found.value_type,)
    if isinstance(found, inspect.CollectionType):
        return (found.item_type,)
    return (found.type,) if isinstance(found, inspect.Metadata) else ()


def _mark(schema: dict[str, Any], found: inspect.Type) -> None:
    if isinstance(found, inspect.DateTimeType):
        schema["format"] = "date-time"
    elif isinstance(found, inspect.UnionType):
        moments = any(isinstance(one, inspect.DateTimeType) for one in found.types)
        for one in schema.get("anyOf", ()):
            if moments and one.get("type") == "string" and "enum" not in one:
                one["format"] = "date-time"
    elif (inner := _inner(found)) and not isinstance(found, inspect.Metadata):
        _mark(schema.get("items") or schema.get("additionalProperties") or {}, inner[0])
