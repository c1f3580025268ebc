"""Cursors: the position after a page, tied to its query, as URL-safe text."""

from __future__ import annotations

import base64
import binascii
import hashlib
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from holdfast.errors import BadCursorError

T = TypeVar("T")
_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
_PACK: Final = msgspec.msgpack.Encoder()
_UNPACK: Final = msgspec.msgpack.Decoder(tuple[bytes, msgspec.Raw])


def fingerprint(query: Any) -> bytes:
    """Return a digest that identifies a query."""
    return _digest(_PACK.encode(query))


@lru_cache(maxsize=4_096)
def _digest(packed: bytes) -> bytes:
    # Kept, because the code of the digest is as long as all else that makes a cursor, and never in the cache.
    return hashlib.blake2b(packed, digest_size=8).digest()


def encode_cursor(digest: bytes, position: Any) -> str:
    """Return the cursor that continues after a position."""
    text = binascii.b2a_base64(_PACK.encode((digest, position)), newline=False)
    return text.translate(_URL_SAFE, b"=").decode()


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
