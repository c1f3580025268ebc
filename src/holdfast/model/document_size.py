"""The size limit of documents: Firestore's, counted as Firestore counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import TooLargeError
from holdfast.model.limits import DOCUMENT_BYTES_MAX


def check_size(body: bytes, load: Callable[[bytes], Any]) -> None:
    """Refuse a document over Firestore's size limit, counted as Firestore counts."""
    # No value counts more than four times its JSON, so small documents need no exact count.
    if len(body) * 4 <= DOCUMENT_BYTES_MAX:
        return
    size = size_of(load(body)) if len(body) <= DOCUMENT_BYTES_MAX else len(body)
    if size > DOCUMENT_BYTES_MAX:
        raise TooLargeError(f"a document takes at most {DOCUMENT_BYTES_MAX:,} bytes; this one {size:,}")


def size_of(value: Any) -> int:
    """Return the size in bytes as Firestore counts it."""
    # Iterative, by exact types: a document of a megabyte has tens of thousands of values.
    size, rest = 0, [value]
    while rest:
        one = rest.pop()
        kind = type(one)
        if kind is str:
            size += _text_bytes(one)
        elif kind is dict:
            size += 32
            for name, item in one.items():
                size += _text_bytes(name)
                rest.append(item)
        elif kind is list:
            rest += one
        else:
            size += 1 if one is None or kind is bool else 8
    return size


def _text_bytes(text: str) -> int:
    return (len(text) if text.isascii() else len(text.encode())) + 1
