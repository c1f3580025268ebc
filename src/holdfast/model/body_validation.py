"""Validation of documents by decoding the JSON that they were encoded to.

Base64 takes more than half of that for a document with a body of a kilobyte, and what the encoder made of
bytes is valid: a field that holds bytes is skipped, the others are decoded as declared.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as mi

Decode = Callable[[bytes], Any]


class BodyValidator(NamedTuple):
    """Takes a document and its JSON, or many; returns structs with the values that columns are read from.

    `one` is None where the class's decoder does the same.
    """

    one: Callable[[Any, bytes], Any] | None
    many: Callable[[Sequence[Any], Iterable[bytes]], Iterable[Any]]


def body_validator(info: mi.StructType, decode: Decode, columns: Container[str]) -> BodyValidator:
    """Return what validates documents of a class; bytes are not decoded where no column is read from them.

    A class with a method that runs after decoding needs all of its fields.
    """
    names = [f.name for f in info.fields if _is_any_bytes(f.type) and f.name not in columns]
    if not names or info.array_like or info.tag is not None or hasattr(info.cls, "__post_init__"):
        return BodyValidator(None, lambda documents, bodies: map(decode, bodies))
    skipping = msgspec.json.Decoder(_with_raw_fields(info, names)).decode
    read: Callable[[Any], Any] = attrgetter(*names)

    def validate_one(document: Any, body: bytes) -> Any:
        return skipping(body) if type(read(document)) is bytes else decode(body)

    def validate_all(document: Any, body: bytes) -> Any:
        return skipping(body) if set(map(type, read(document))) == {bytes} else decode(body)

    def validate_many(documents: Sequence[Any], bodies: Iterable[bytes]) -> Iterable[Any]:
        types = {type(value) for name in names for value in map(attrgetter(name), documents)}
        return map(skipping if types == {bytes} else decode, bodies)

    return BodyValidator(validate_one if len(names) == 1 else validate_all, validate_many)


def _is_any_bytes(kind: mi.Type) -> bool:
    while isinstance(kind, mi.Metadata):
        kind = kind.type
    return isinstance(kind, mi.BytesType) and kind.min_length is None and kind.max_length is None


def _with_raw_fields(info: mi.StructType, names: Container[str]) -> type[msgspec.Struct]:
    """Return a class like this one in which the named fields hold any JSON, undecoded."""
    fields: list[tuple[str, Any, Any]] = []
    for field in msgspec.structs.fields(info.cls):
        kind = msgspec.Raw if field.name in names else field.type
        if field.default_factory is not NODEFAULT:
            fields.append((field.name, kind, msgspec.field(default_factory=field.default_factory)))
        else:
            fields.append((field.name, kind, msgspec.field(default=field.default)))
    stored = {field.name: field.encode_name for field in info.fields}
    return msgspec.defstruct(info.cls.__name__, fields, rename=stored, kw_only=True)
