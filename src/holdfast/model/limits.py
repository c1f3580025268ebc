"""The limits of all engines, checked before anything is sent to one."""

from __future__ import annotations

from typing import Final

DOCUMENT_BYTES_MAX: Final = 1_048_576
ID_BYTES_MAX: Final = 500
KEY_BYTES_MAX: Final = 1_000
INDEX_ENTRY_BYTES_MAX: Final = 2_400
NESTING_MAX: Final = 20
INTEGER_MAX: Final = 2**63 - 1
INTEGER_MIN: Final = -(2**63)
WRITES_MAX: Final = 500
ALTERNATIVES_MAX: Final = 30
PAGE_MAX: Final = 10_000
