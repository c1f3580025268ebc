"""Cursors: the position after a page, tied to its query, as URL-safe text."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import BadCursorError

T = TypeVar("T")
_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder(tuple[bytes, msgspec.Raw])


def fingerprint(query: Any) -> bytes:
    """Return a digest that identifies a query."""
    return hashlib.blake2b(_PACK.encode(query), digest_size=8).digest()


def encode_cursor(digest: bytes, position: Any) -> str:
    """Return the cursor that continues after a position."""
    return base64.urlsafe_b64encode(_PACK.encode((digest, position))).decode().rstrip("=")


def decode_cursor(cursor: str, digest: bytes, *, type: type[T]) -> T:
    """Return a cursor's position; refuses a cursor of another query, and text that is no cursor."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        found, position = _UNPACK.decode(raw)
        if found != digest:
            raise BadCursorError("this cursor belongs to another query")
        return msgspec.msgpack.decode(position, type=type)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadCursorError("not a cursor; use the one of the last page") from None
