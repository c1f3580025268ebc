"""Garbage collection in a process that lives long."""

from __future__ import annotations

import gc
from typing import Final

# Objects that are made and gone with a message hardly ever form cycles; looking for some every 700 is waste.
_YOUNG_MAX: Final = 10_000


def freeze_gc() -> None:
    """Leave what a process has built so far out of garbage collection: it stays until the end.

    Call it once, when a process is ready to serve or work.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_MAX, 20, 50)
