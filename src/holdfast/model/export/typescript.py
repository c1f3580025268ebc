"""TypeScript interfaces of the documents as their JSON is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import inspect as mi

from holdfast.model.columns import enum_values, may_miss
from holdfast.model.export.structs import Shape, description_of, shapes_of
from holdfast.model.schema import Schema

_HEAD: Final = """\
// Made by `holdfast schema export --format typescript`; change the declarations, not this file.

/** An instant in UTC, as text: "2024-01-15T10:30:00.123456Z". */
export type Timestamp = string;
"""
_WORDS: Final[dict[type[mi.Type], str]] = {
    mi.StrType: "string", mi.IntType: "number", mi.FloatType: "number", mi.BoolType: "boolean",
    mi.NoneType: "null", mi.DateTimeType: "Timestamp", mi.BytesType: "string", mi.DateType: "string",
    mi.TimeType: "string", mi.TimeDeltaType: "string", mi.UUIDType: "string", mi.DecimalType: "string",
}  # fmt: skip
_LISTS: Final = (mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType)
_NAME: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


def typescript(schemas: Iterable[Schema[Any]], env: str) -> str:
    """One module: an interface per document and per struct inside one."""
    shapes = shapes_of(schemas)
    names = {cls: shape.name for cls, shape in shapes.items()}
    return "\n".join([_HEAD, *(_interface(shape, names, env) for shape in shapes.values())])


def _interface(shape: Shape, names: Mapping[type, str], env: str) -> str:
    text = shape.description or ""
    if shape.schema:
        text += f"\n\nKept at {shape.schema.declared.path.replace('{env}', env)}"
    lines = [*_comment(text, ""), f"export interface {shape.name} {{"]
    if shape.info.tag_field:
        lines.append(f"  {_property_name(shape.info.tag_field)}: {json.dumps(shape.info.tag)};")
    for field in shape.fields:
        lines += _comment(description_of(field) or "", "  ")
        mark = "?" if may_miss(field) else ""
        lines.append(f"  {_property_name(field.encode_name)}{mark}: {type_text(field.type, names)};")
    return "\n".join([*lines, "}", ""])


def type_text(kind: mi.Type, names: Mapping[type, str]) -> str:
    """A declared type in TypeScript's words; `names` are the structs that have an interface."""
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    values = enum_values(kind)
    if values is not None:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
    if isinstance(kind, mi.UnionType):
        return " | ".join(dict.fromkeys(type_text(one, names) for one in kind.types))
    if isinstance(kind, _LISTS):
        return f"Array<{type_text(kind.item_type, names)}>"
    if isinstance(kind, mi.TupleType):
        return f"[{', '.join(type_text(one, names) for one in kind.item_types)}]"
    if isinstance(kind, mi.DictType):
        return f"Record<string, {type_text(kind.value_type, names)}>"
    if isinstance(kind, mi.StructType):
        return names[kind.cls]
    return _WORDS.get(type(kind), "unknown")


def _property_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _comment(text: str, indent: str) -> list[str]:
    # "*/" in a description would end the comment.
    lines = text.strip().replace("*/", "* /").splitlines()
    if not lines:
        return []
    if len(lines) == 1:
        return [f"{indent}/** {lines[0]} */"]
    return [f"{indent}/**", *(f"{indent} * {line}".rstrip() for line in lines), f"{indent} */"]
