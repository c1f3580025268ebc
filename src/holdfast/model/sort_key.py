"""Sort keys: byte strings that are ordered as their values.

Mixed types have one order on every engine: null, booleans, numbers, times, text, bytes. Integers and
floats are ordered together. Only columns of an open type (a union, `Any`, a field that may be missing)
are stored this way; a missing value has no sort key.
"""

from __future__ import annotations

import struct
from datetime import datetime
from typing import Final

from holdfast.clock import to_us
from holdfast.errors import WrongTypeError

NULL: Final = b"\x01"
_BOOLEAN: Final = b"\x02"
_NUMBER: Final = b"\x03"
_TIME: Final = b"\x04"
_TEXT: Final = b"\x05"
_BYTES: Final = b"\x06"
_END: Final = b"\x07"

_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1


def ordered(value: object, path: str | None = None) -> bytes:
    """Return the sort key of a value; comparing two of them compares the values."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return _BOOLEAN + (b"\x01" if value else b"\x00")
    if isinstance(value, (int, float)):
        return _NUMBER + _number(value)
    if isinstance(value, datetime):
        return _TIME + struct.pack(">Q", to_us(value) + _SIGN)
    if isinstance(value, str):
        return _TEXT + value.encode()
    if isinstance(value, bytes):
        return _BYTES + value
    raise WrongTypeError(f"an indexed field can't have a {type(value).__name__}", path)


def bracket(value: object) -> tuple[bytes, bytes]:
    """Return the sort keys between which all values of this value's type are."""
    head = ordered(value)[:1]
    return head, bytes([head[0] + 1])


def everything() -> tuple[bytes, bytes]:
    """Return the sort keys between which all values but null are."""
    return _BOOLEAN, _END


def _number(value: float) -> bytes:
    # A float can't tell 2**53 from 2**53 + 1, so the exact distance from the nearest float follows it.
    nearest = float(value) + 0.0
    rest = int(value) - int(nearest) if isinstance(value, int) else 0
    (bits,) = struct.unpack(">Q", struct.pack(">d", nearest))
    bits = bits ^ _ALL if bits & _SIGN else bits | _SIGN
    return struct.pack(">QH", bits, rest + 0x8000)
