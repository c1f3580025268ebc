"""Cursors: where a page ended, tied to the question it answered, as text that fits an address."""

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


def mark_of(asked: Any) -> bytes:
    """What tells a question from every other."""
    return hashlib.blake2b(_PACK.encode(asked), digest_size=8).digest()


def cursor_at(mark: bytes, place: Any) -> str:
    """The cursor that goes on behind a place in the answer."""
    return base64.urlsafe_b64encode(_PACK.encode((mark, place))).decode().rstrip("=")


def place_in(cursor: str, mark: bytes, *, of: type[T]) -> T:
    """The place a cursor names; refuses one of another question, and what is none at all."""
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        found, place = _UNPACK.decode(raw)
        if found != mark:
            raise BadCursorError("this cursor belongs to another query")
        return msgspec.msgpack.decode(place, type=of)
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadCursorError("not a cursor; use the one the last page gave") from None
