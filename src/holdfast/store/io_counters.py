"""How many documents this process has read and written: figures, kept as cheaply as can be."""

from __future__ import annotations

from typing import Final


class IoCounters:
    """Counts up for as long as the process lives; readers take differences."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.reads = self.writes = 0


TALLY: Final = IoCounters()
