"""JSON values, times and bytes as Firestore values, and back unchanged.

Firestore takes no list directly inside a list, and no map key that is empty or like `__x__`. Such a list
becomes a map with the one key `~json`; such a key, and one that begins with `~`, gets a `~` in front.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from holdfast.clock import EPOCH, to_us
from holdfast.store.firestore.wire import ArrayValue, MapValue, Timestamp, Value

_ODD_KEY: Final = re.compile(r"(~.*|__.*__)?", re.DOTALL)
_PLAIN_SEGMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIST: Final = "~json"


def encode_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {_key(name): encode(value) for name, value in fields.items()}


def decode_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("~"): decode(value) for name, value in fields.items()}


def encode(value: Any) -> Any:
    """Return the Firestore value that preserves `value` and its type."""
    if value is None:
        return Value(null_value=0)
    if isinstance(value, bool):
        return Value(boolean_value=value)
    if isinstance(value, str):
        return Value(string_value=value)
    if isinstance(value, int):
        return Value(integer_value=value)
    if isinstance(value, float):
        return Value(double_value=value)
    if isinstance(value, datetime):
        return Value(timestamp_value=_timestamp(value))
    if isinstance(value, bytes):
        return Value(bytes_value=value)
    if isinstance(value, Mapping):
        return Value(map_value=MapValue(fields=encode_fields(value)))
    return encode_list(_item(item) for item in value)


def encode_list(items: Iterable[Any]) -> Any:
    return Value(array_value=ArrayValue(values=items))


def decode(value: Any) -> Any:
    kind = value.WhichOneof("value_type")
    if kind == "null_value":
        return None
    if kind == "timestamp_value":
        return _datetime(value.timestamp_value)
    if kind == "array_value":
        return [decode(item) for item in value.array_value.values]
    if kind == "map_value":
        return _decode_map(value.map_value.fields)
    return getattr(value, kind)


def field_path(stored: str) -> str:
    """Return a stored name, dotted where it goes into maps, as queries and masks spell it."""
    return ".".join(_segment(_key(name)) for name in stored.split("."))


def value_at(fields: Mapping[str, Any], stored: str) -> Any:
    """Return the Firestore value under a dotted stored name, or None."""
    *heads, last = (_key(name) for name in stored.split("."))
    for head in heads:
        if head not in fields:
            return None
        fields = fields[head].map_value.fields
    return fields.get(last)


def _item(value: Any) -> Any:
    # As JSON text it nests no deeper than the list did, and nesting is limited.
    if isinstance(value, (list, tuple)):
        return Value(
            map_value=MapValue(fields={_LIST: Value(string_value=msgspec.json.encode(value).decode())})
        )
    return encode(value)


def _decode_map(fields: Mapping[str, Any]) -> Any:
    if len(fields) == 1 and _LIST in fields:
        return msgspec.json.decode(fields[_LIST].string_value)
    return decode_fields(fields)


def _key(name: str) -> str:
    return f"~{name}" if _ODD_KEY.fullmatch(name) else name


def _segment(name: str) -> str:
    if _PLAIN_SEGMENT.fullmatch(name):
        return name
    escaped = name.replace("\\", "\\\\").replace("`", "\\`")
    return f"`{escaped}`"


def _timestamp(moment: datetime) -> Any:
    seconds, micros = divmod(to_us(moment), 1_000_000)
    return Timestamp(seconds=seconds, nanos=micros * 1_000)


def _datetime(stamp: Any) -> datetime:
    return EPOCH + timedelta(seconds=stamp.seconds, microseconds=stamp.nanos // 1_000)
