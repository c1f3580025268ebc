"""Columns: the fields that engines store separately, because they are indexed, claimed or the tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta
from msgspec import inspect as mi

from holdfast.errors import UnknownFieldError, WrongTypeError
from holdfast.model.plain_fields import may_miss
from holdfast.model.sort_key import ordered
from holdfast.model.values import check_operand

Kind = Literal["integer", "number", "boolean", "text", "time", "bytes", "open", "list"]

_SIMPLE: dict[type[mi.Type], Kind] = {
    mi.IntType: "integer", mi.FloatType: "number", mi.BoolType: "boolean", mi.StrType: "text",
    mi.DateTimeType: "time", mi.BytesType: "bytes", mi.DateType: "text", mi.UUIDType: "text",
}  # fmt: skip


class Column(msgspec.Struct, frozen=True, eq=False):
    """A field: its Python path, its stored path and the kind of its values.

    `kind` "open" is a field of several types, or one that may be missing: stored as a sort key, null when
    missing. `read` takes a document and returns the plain value, UNSET when missing.
    """

    path: str
    stored: str
    kind: Kind
    nullable: bool
    read: Callable[[Any], Any]

    def value(self, document: Any) -> Any:
        """Return what an SQL engine stores: None for null, or for missing where `kind` is open."""
        value = self.read(document)
        if self.kind == "open":
            return None if value is UNSET else ordered(value, self.path)
        return value

    def operand(self, value: object) -> Any:
        """Return a value to compare the field with; refuses one that the field can never have."""
        if type(value) is str and self.kind == "text" and value.isascii() and "\0" not in value:
            return value  # as `_checked_operand` would
        return self._checked_operand(value)

    def _checked_operand(self, value: object) -> Any:
        plain = self._plain_operand(value)
        if plain is None:
            if not self.nullable and self.kind not in ("open", "list"):
                raise WrongTypeError(f"{self.path} is never null", self.path)
            return None
        if self.kind in ("open", "list"):
            ordered(plain, self.path)
            return plain
        if self.kind == "number" and isinstance(plain, int) and not isinstance(plain, bool):
            plain = float(plain)
        if not _fits(plain, self.kind):
            raise WrongTypeError(
                f"{self.path} is of kind {self.kind}, {value!r} of type {type(value).__name__}", self.path
            )
        return plain

    def _plain_operand(self, value: object) -> Any:
        try:
            plain = check_operand(_plain(value), self.path)
        except (TypeError, ValueError):
            raise WrongTypeError(
                f"{self.path} can't be compared with a {type(value).__name__}", self.path
            ) from None
        if self.kind == "text" and isinstance(plain, str) and "\0" in plain:
            raise WrongTypeError("indexed text can't contain the NUL character", self.path)
        return plain


_PYTHON: dict[Kind, tuple[type, ...]] = {
    "integer": (int,), "number": (float,), "boolean": (bool,), "text": (str,), "time": (datetime,),
    "bytes": (bytes,),
}  # fmt: skip


def _fits(value: object, kind: Kind) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _PYTHON[kind])


def _plain(value: Any) -> Any:
    if value is None or value is UNSET or type(value) in (int, str, float, bool, datetime, bytes):
        return value
    return msgspec.to_builtins(value, builtin_types=(datetime, bytes))


def make_column(path: str, fields: Mapping[str, mi.Field], where: str) -> Column:
    """Return the column of a dotted path in a document's fields."""
    stored, kind, optional = find_field(path, fields, where)
    simple, nullable = _simple(kind, path)
    if optional and simple != "list":
        simple = "open"
    return Column(path, stored, simple, nullable, _reader(path.split("."), kind, optional))


ReadableKind = Literal["integer", "number", "boolean", "text", "decimal", "json", "time", "date", "bytes"]
_READABLE: dict[type[mi.Type], ReadableKind] = {
    mi.IntType: "integer", mi.FloatType: "number", mi.BoolType: "boolean", mi.DecimalType: "decimal",
    mi.DictType: "json", mi.StructType: "json", mi.ListType: "json", mi.AnyType: "json", mi.UnionType: "json",
    mi.VarTupleType: "json", mi.SetType: "json", mi.FrozenSetType: "json", mi.DateTimeType: "time",
    mi.DateType: "date", mi.BytesType: "bytes",
}  # fmt: skip


def readable_kind(kind: mi.Type) -> ReadableKind:
    """Return the kind of a field for people who read with SQL; several types in one field are JSON."""
    kind = _strip(kind)
    if isinstance(kind, mi.UnionType):
        rest = [t for t in kind.types if not isinstance(t, mi.NoneType)]
        return readable_kind(rest[0]) if len(rest) == 1 else "json"
    values = enum_values(kind)
    if values is not None:
        simple = _literal(tuple(values))[0]
        return simple if simple in ("text", "integer") else "json"
    return _READABLE.get(type(kind), "text")


# Marks a field that people never see: `hash: Annotated[str, HIDDEN]`.
HIDDEN: Final = Meta(extra={"hidden": True})


def is_hidden(kind: mi.Type) -> bool:
    """Whether the field is marked with `HIDDEN`."""
    return isinstance(kind, mi.Metadata) and bool((kind.extra or {}).get("hidden"))


def find_field(path: str, fields: Mapping[str, mi.Field], where: str) -> tuple[str, mi.Type, bool]:
    """Return a field's stored path, its type, and whether it may be missing; refuses an unknown path."""
    names = path.split(".")
    stored: list[str] = []
    optional = False
    kind: mi.Type = mi.AnyType()
    for position, name in enumerate(names):
        field = fields.get(name)
        if field is None:
            known = ", ".join(sorted(fields)) or "none"
            raise UnknownFieldError(f"{where}: no field {name!r}; its fields are: {known}", path)
        stored.append(field.encode_name)
        kind = _strip(field.type)
        optional = optional or may_miss(field)
        if position + 1 < len(names):
            fields, optional = _inside(kind, optional, where=where, path=path)
    return ".".join(stored), kind, optional


def _strip(kind: mi.Type) -> mi.Type:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    return kind


def _inside(kind: mi.Type, optional: bool, *, where: str, path: str) -> tuple[Mapping[str, mi.Field], bool]:
    if isinstance(kind, mi.UnionType):
        rest = [t for t in kind.types if not isinstance(t, mi.NoneType)]
        optional = True
        kind = rest[0] if len(rest) == 1 else kind
    if not isinstance(kind, mi.StructType):
        raise UnknownFieldError(f"{where}: {path!r} goes into a field that is not a struct", path)
    return {f.name: f for f in kind.fields}, optional


def _simple(kind: mi.Type, path: str) -> tuple[Kind, bool]:
    if isinstance(kind, mi.UnionType):
        rest = [t for t in kind.types if not isinstance(t, mi.NoneType)]
        if len(rest) < len(kind.types) and len(rest) == 1:
            return _simple(rest[0], path)[0], True
        return "open", True
    if isinstance(kind, mi.Metadata):
        return _simple(kind.type, path)
    if isinstance(kind, mi.DecimalType):
        raise WrongTypeError(
            "a decimal is stored as text, which does not sort as a number; don't index it", path
        )
    if isinstance(kind, mi.LiteralType):
        return _literal(kind.values)
    if isinstance(kind, mi.EnumType):
        return _literal(tuple(member.value for member in kind.cls))
    if isinstance(kind, (mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType)):
        return "list", False
    return _SIMPLE.get(type(kind), "open"), type(kind) not in _SIMPLE


def _literal(values: tuple[Any, ...]) -> tuple[Kind, bool]:
    if all(isinstance(v, str) for v in values):
        return "text", False
    if all(isinstance(v, int) for v in values):
        return "integer", False
    return "open", True


def _reader(names: list[str], kind: mi.Type, optional: bool) -> Callable[[Any], Any]:
    if len(names) == 1 or not optional:
        get: Callable[[Any], Any] = attrgetter(".".join(names))
    else:
        get = _nested_reader(names)
    return _convert(get) if _needs_conversion(kind) else get


def _nested_reader(names: list[str]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        for name in names:
            if value is None or value is UNSET:
                return UNSET
            value = getattr(value, name)
        return value

    return read


def _needs_conversion(kind: mi.Type) -> bool:
    if isinstance(kind, mi.UnionType):
        return any(_needs_conversion(t) for t in kind.types)
    return isinstance(
        kind,
        (mi.DateType, mi.UUIDType, mi.EnumType, mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType),
    )


def _convert(get: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda document: _plain(get(document))


def enum_values(kind: mi.Type) -> list[Any] | None:
    """Return the values of a literal or enum type, None for other types."""
    if isinstance(kind, mi.LiteralType):
        return list(kind.values)
    if isinstance(kind, mi.EnumType):
        return [m.value for m in kind.cls]
    return None
