"""The structs that declarations reach, each under one name, for the formats that describe types."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import inspect as mi

from holdfast.model.schema import Schema


class Shape(msgspec.Struct, frozen=True, eq=False):
    """A struct as it is stored: its name in the export, its fields, and a document's schema."""

    name: str
    cls: type
    info: mi.StructType
    fields: tuple[mi.Field, ...]
    schema: Schema[Any] | None

    @property
    def description(self) -> str | None:
        # A class without a docstring of its own would show its parent's, or a generated signature.
        own = self.cls.__dict__.get("__doc__")
        return inspect.cleandoc(own) if own else None


def shapes_of(schemas: Iterable[Schema[Any]]) -> dict[type, Shape]:
    """Return each document followed by the structs inside it, once each, in the order declared."""
    declared = {schema.cls: schema for schema in schemas}
    found: dict[type, Shape] = {}
    for cls in declared:
        _add(found, mi.type_info(cls), declared)
    return found


def _add(found: dict[type, Shape], info: mi.Type, declared: Mapping[type, Schema[Any]]) -> None:
    if not isinstance(info, mi.StructType) or info.cls in found:
        return
    schema = declared.get(info.cls)
    hidden = schema.declared.path_only if schema else ()
    fields = tuple(field for field in info.fields if field.name not in hidden)
    name = _unique_name(info.cls.__name__, {shape.name for shape in found.values()})
    found[info.cls] = Shape(name, info.cls, info, fields, schema)
    for field in fields:
        for inner in _structs_in(field.type):
            _add(found, inner, declared)


def _structs_in(kind: mi.Type) -> Iterator[mi.StructType]:
    if isinstance(kind, mi.StructType):
        yield kind
    elif isinstance(kind, mi.Metadata):
        yield from _structs_in(kind.type)
    elif isinstance(kind, mi.DictType):
        yield from _structs_in(kind.value_type)
    elif isinstance(kind, (mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType)):
        yield from _structs_in(kind.item_type)
    elif isinstance(kind, mi.UnionType):
        for one in kind.types:
            yield from _structs_in(one)
    elif isinstance(kind, mi.TupleType):
        for one in kind.item_types:
            yield from _structs_in(one)


def _unique_name(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}{number}", number + 1
    return free


def description_of(field: mi.Field) -> str | None:
    """Return a field's description in `Annotated[..., Meta(description=...)]`."""
    kind = field.type
    while isinstance(kind, mi.Metadata):
        text = (kind.extra_json_schema or {}).get("description")
        if isinstance(text, str):
            return " ".join(text.split())
        kind = kind.type
    return None
