"""Claims change columns only, so what a column says wins over the JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET
from msgspec import inspect as mi

from holdfast.model.columns import Column, Kind
from holdfast.model.schema import Schema
from holdfast.model.sort_key import NULL

Convert = Callable[[Any], Any]


def conversion(schema: Schema[Any], column: Column, kinds: Mapping[Kind, Convert]) -> Convert | None:
    """How a claimed column's value becomes the document's; None where it is that already.

    `kinds` says what the engine's driver gives in a form of its own.
    """
    if column.kind == "open":
        return _from_ordered
    enum = _enum(schema.fields[column.path].type)
    made = enum or kinds.get(column.kind)
    return None if made is None else lambda value: None if value is None else made(value)


def _from_ordered(value: bytes | None) -> Any:
    return UNSET if value is None else None if value == NULL else value[1:].decode()


def _enum(kind: mi.Type) -> Convert | None:
    if isinstance(kind, mi.Metadata):
        return _enum(kind.type)
    if isinstance(kind, mi.UnionType):
        return next((found for found in map(_enum, kind.types) if found), None)
    return kind.cls if isinstance(kind, mi.EnumType) else None
