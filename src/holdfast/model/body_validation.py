"""Validation of documents by decoding the JSON that they were encoded to.

Base64 takes more than half of that for a document with a body of a kilobyte, and what the encoder made of
bytes is valid: a field that holds bytes is skipped, the others are decoded as declared.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import NODEFAULT
from msgspec import inspect as mi

Decode = Callable[[bytes], Any]
# Takes a document and its JSON; returns a struct with the values that its columns are read from.
Validate = Callable[[Any, bytes], Any]


def skipping_validator(info: mi.StructType, decode: Decode, columns: Container[str]) -> Validate | None:
    """Return what validates documents of a class without decoding their bytes; None where it has none.

    A class with a method that runs after decoding needs all of its fields.
    """
    names = [f.name for f in info.fields if _is_any_bytes(f.type) and f.name not in columns]
    if not names or info.array_like or info.tag is not None or hasattr(info.cls, "__post_init__"):
        return None
    skipping = msgspec.json.Decoder(_with_raw_fields(info, names)).decode
    read: Callable[[Any], Any] = attrgetter(*names)

    def validate_one(document: Any, body: bytes) -> Any:
        return skipping(body) if type(read(document)) is bytes else decode(body)

    def validate_all(document: Any, body: bytes) -> Any:
        return skipping(body) if set(map(type, read(document))) == {bytes} else decode(body)

    return validate_one if len(names) == 1 else validate_all


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
