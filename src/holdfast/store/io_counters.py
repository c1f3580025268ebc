"""How many documents this process has read and written."""

from __future__ import annotations

from typing import Final


class IoCounters:
    """Counters since the process started; readers take differences."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.reads = self.writes = 0


IO_COUNTERS: Final = IoCounters()
