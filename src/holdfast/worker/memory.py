"""Garbage collector settings for a long-lived process."""

from __future__ import annotations

import gc
from typing import Final

# Objects that live as long as a message hardly ever form cycles; a collection every 700 is waste.
_YOUNG_MAX: Final = 10_000


def freeze_gc() -> None:
    """Exempt everything built so far from garbage collection: it lives until the process ends.

    Call it once, when a process is ready to serve or work.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, 20, 50)
