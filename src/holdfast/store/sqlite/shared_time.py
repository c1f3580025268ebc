"""One time for all processes on a file: the machine's time since boot plus an offset stored in the file.

The time since boot is the same for every process and never jumps, unlike the wall clock. Each process that
asks moves the offset towards its wall clock, slowly, so that a clock that was set right is followed; where
nobody has asked for some minutes no process lives, and the wall clock is taken as it is. An offset that
is seconds old is only read.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import apsw
import msgspec

ALONE_S: Final = 300.0
FRESH_US: Final = 30_000_000
SLEW: Final = 0.05
_ROW: Final = "clock"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_SINCE_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class _SharedOffset(msgspec.Struct, frozen=True):
    boot_id: str
    offset_us: int
    asked_us: int


def shared_now_us(connection: apsw.Connection, local_us: int) -> int:
    """Return the shared time; to be called inside a write transaction."""
    since_boot_us, boot_id = time.clock_gettime_ns(_SINCE_BOOT) // 1_000, _boot_id()
    row = connection.execute("SELECT value FROM _holdfast_meta WHERE name = ?", (_ROW,)).fetchone()
    stored = None if row is None else msgspec.json.decode(str(row[0]), type=_SharedOffset)
    if stored is not None and stored.boot_id == boot_id and 0 <= since_boot_us - stored.asked_us < FRESH_US:
        return since_boot_us + stored.offset_us
    offset_us = next_offset_us(stored, local_us - since_boot_us, since_boot_us=since_boot_us, boot_id=boot_id)
    agreed = _SharedOffset(boot_id, offset_us, since_boot_us)
    connection.execute(
        "INSERT OR REPLACE INTO _holdfast_meta VALUES (?, ?)", (_ROW, msgspec.json.encode(agreed).decode())
    )
    return since_boot_us + offset_us


def next_offset_us(
    stored: _SharedOffset | None, local_offset_us: int, *, since_boot_us: int, boot_id: str
) -> int:
    """Return the offset to share from now on: the stored one, slewed towards the local one."""
    if stored is None or stored.boot_id != boot_id:
        return local_offset_us
    passed_us = since_boot_us - stored.asked_us
    if passed_us > ALONE_S * 1e6:
        return local_offset_us
    most_us = int(max(0, passed_us) * SLEW)
    return stored.offset_us + max(-most_us, min(most_us, local_offset_us - stored.offset_us))


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
