"""JSON Schema, draft 2020-12, of the documents as they are stored.

One bundle: every document is under `$defs` by its class name, so `{**bundle, "$ref": "#/$defs/Run"}`
validates a stored run. Additional properties are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as mi

from holdfast.model.columns import enum_values
from holdfast.model.export.structs import Shape, description_of, shapes_of
from holdfast.model.identity import Identity, ProvidedId, TimestampId, UlidId
from holdfast.model.limits import INTEGER_MAX, INTEGER_MIN
from holdfast.model.schema import Schema

Json = dict[str, Any]

# What the store writes: UTC, at most microseconds. A pattern, since `format` only annotates.
_TIME: Final = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$"
_FIXED: Final[dict[type[mi.Type], Json]] = {
    mi.BoolType: {"type": "boolean"},
    mi.NoneType: {"type": "null"},
    mi.DateTimeType: {"type": "string", "format": "date-time", "pattern": _TIME},
    mi.DateType: {"type": "string", "format": "date", "pattern": r"^\d{4}-\d\d-\d\d$"},
    mi.TimeType: {"type": "string", "format": "time"},
    mi.TimeDeltaType: {"type": "string", "format": "duration"},
    mi.UUIDType: {"type": "string", "format": "uuid"},
    mi.DecimalType: {"type": "string", "format": "decimal"},
}
_LISTS: Final = (mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType)
_BOUNDS: Final = {
    "gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum",
    "multiple_of": "multipleOf",
}  # fmt: skip


def json_schema(schemas: Iterable[Schema[Any]], env: str) -> str:
    """Return the bundle as text; `env` replaces `{env}` in collection names."""
    shapes = shapes_of(schemas)
    defs = {shape.name: _object(shape, shapes, env) for shape in shapes.values()}
    bundle = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": defs}
    return msgspec.json.format(msgspec.json.encode(bundle), indent=2).decode() + "\n"


def _object(shape: Shape, shapes: dict[type, Shape], env: str) -> Json:
    result: Json = {"title": shape.name}
    if shape.description:
        result["description"] = shape.description
    if shape.schema:
        result["x-collection"] = shape.schema.declared.path.replace("{env}", env)
    properties = {field.encode_name: _property(field, shapes) for field in shape.fields}
    if shape.schema:
        name = shape.schema.fields[shape.schema.path.parameters[-1]].encode_name
        if name in properties:
            properties[name] |= _id_pattern(shape.schema.declared.id, properties[name])
    required = [field.encode_name for field in shape.fields if field.required]
    if shape.info.tag_field:
        properties = {shape.info.tag_field: {"const": shape.info.tag}, **properties}
        required.insert(0, shape.info.tag_field)
    return result | {
        "type": "object", "properties": properties, "required": required, "additionalProperties": False,
    }  # fmt: skip


def _id_pattern(identity: Identity, declared: Json) -> Json:
    if "pattern" in declared:
        return {}
    if isinstance(identity, ProvidedId) and identity.pattern:
        return {"pattern": f"^(?:{identity.pattern})$"}
    if isinstance(identity, TimestampId):
        return {"pattern": f"^{re.escape(identity.prefix)}-"}
    return {"minLength": 1} if isinstance(identity, UlidId) else {}


def _property(field: mi.Field, shapes: dict[type, Shape]) -> Json:
    result = dict(_type(field.type, shapes))
    text = description_of(field)
    if text:
        result["description"] = text
    if field.default is not NODEFAULT:
        result["default"] = msgspec.to_builtins(field.default)
    return result


def _type(kind: mi.Type, shapes: dict[type, Shape]) -> Json:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    values = enum_values(kind)
    if values is not None:
        return {"enum": values}
    fixed = _FIXED.get(type(kind))
    if fixed is not None:
        return dict(fixed)
    for known, describe in _DESCRIBED:
        if isinstance(kind, known):
            return describe(kind, shapes)
    return {}


def _text(kind: Any, shapes: dict[type, Shape]) -> Json:
    result = {"type": "string"} | _given(minLength=kind.min_length, maxLength=kind.max_length)
    return result | _given(pattern=kind.pattern)


def _bytes(kind: Any, shapes: dict[type, Shape]) -> Json:
    return {"type": "string", "contentEncoding": "base64", "pattern": r"^[A-Za-z0-9+/]*={0,2}$"}


def _number(kind: Any, shapes: dict[type, Shape]) -> Json:
    whole = isinstance(kind, mi.IntType)
    result: Json = {"type": "integer" if whole else "number"}
    result |= {word: value for name, word in _BOUNDS.items() if (value := getattr(kind, name)) is not None}
    if whole and not {"minimum", "exclusiveMinimum"} & set(result):
        result["minimum"] = INTEGER_MIN
    if whole and not {"maximum", "exclusiveMaximum"} & set(result):
        result["maximum"] = INTEGER_MAX
    return result


def _list(kind: Any, shapes: dict[type, Shape]) -> Json:
    return {"type": "array", "items": _type(kind.item_type, shapes)} | _given(
        minItems=kind.min_length, maxItems=kind.max_length
    )


def _mapping(kind: Any, shapes: dict[type, Shape]) -> Json:
    return {"type": "object", "additionalProperties": _type(kind.value_type, shapes)} | _given(
        minProperties=kind.min_length, maxProperties=kind.max_length
    )


def _tuple(kind: Any, shapes: dict[type, Shape]) -> Json:
    items = [_type(one, shapes) for one in kind.item_types]
    return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}


def _any_of(kind: Any, shapes: dict[type, Shape]) -> Json:
    return {"anyOf": [_type(one, shapes) for one in kind.types]}


def _reference(kind: Any, shapes: dict[type, Shape]) -> Json:
    return {"$ref": f"#/$defs/{shapes[kind.cls].name}"}


def _given(**words: Any) -> Json:
    return {name: value for name, value in words.items() if value is not None}


_DESCRIBED: Final[list[tuple[Any, Callable[[Any, dict[type, Shape]], Json]]]] = [
    (mi.StrType, _text), (mi.BytesType, _bytes), ((mi.IntType, mi.FloatType), _number), (_LISTS, _list),
    (mi.DictType, _mapping), (mi.TupleType, _tuple), (mi.UnionType, _any_of), (mi.StructType, _reference),
]  # fmt: skip
