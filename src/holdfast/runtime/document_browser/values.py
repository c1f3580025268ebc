"""Parsing of filter values that people type."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidError, WrongTypeError
from holdfast.model.columns import Column

_KINDS: Final = {
    "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "time": "a time as in 2026-11-15T12:00:00Z",
}  # fmt: skip


def read_value(column: Column, text: str) -> Any:
    """Parse a value of the column's kind: `null` is None, and words may be quoted.

    Example: `read_value(column, "2026-11-15T12:00:00Z")`
    """
    if text == "null" and (column.nullable or column.kind in ("open", "list")):
        return None
    if column.kind in ("text", "bytes"):
        return _unquote(text)
    value = _time(text) if column.kind == "time" else _json(text)
    if column.kind in ("open", "list"):
        return value
    try:
        return column.operand(value)
    except WrongTypeError:
        message = f"{column.stored} takes {_KINDS[column.kind]}, not {text[:40]!r}"
        raise InvalidError(message, column.stored) from None


def write_value(column: Column, value: Any) -> str:
    """Format a value so that `read_value` parses it again."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str) and column.kind == "text" and not _needs_quotes(value):
        return value
    return msgspec.json.encode(value).decode()


def _needs_quotes(text: str) -> bool:
    """Whether it would be parsed as something else, or lose surrounding spaces."""
    return text in ("", "null") or text[0] == '"' or text != text.strip()


def _unquote(text: str) -> str:
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(text, type=str)
    return text


def _json(text: str) -> Any:
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(text)
    return text


def _time(text: str) -> Any:
    with contextlib.suppress(msgspec.ValidationError):
        return msgspec.convert(text, datetime)
    return text
