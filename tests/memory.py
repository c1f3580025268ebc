"""Where a run keeps what it writes: in memory, where the machine has enough of it.

Tests sync to disk tens of thousands of times and none of them pulls the plug, so what they show is the same;
the time is not. `TMPDIR=/tmp make test` runs on disk, and keeps what failing tests leave behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

import pytest

_MEMORY: Final = Path("/dev/shm")
_NAME: Final = "holdfast-tests-"
_FREE_BYTES_MIN: Final = 4 << 30


def work_in_memory(config: pytest.Config) -> None:
    """Let all temporary files of this run and its processes be in memory until it ends."""
    if os.environ.get("TMPDIR") or not is_fit():
        return
    remove_what_killed_runs_left()
    folder = _MEMORY / f"{_NAME}{os.getpid()}"
    folder.mkdir()
    # Servers run as somebody else, whatever the mask of whoever runs the tests.
    folder.chmod(0o755)
    config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    os.environ["TMPDIR"] = str(folder)
    # Forgets the place found before.
    tempfile.tempdir = None


def is_fit() -> bool:
    """Whether there is room, also for PostgreSQL's programs, which may be copied there and must run."""
    if not os.access(_MEMORY, os.W_OK | os.X_OK):
        return False
    found = os.statvfs(_MEMORY)
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= _FREE_BYTES_MIN


def remove_what_killed_runs_left() -> None:
    """A killed run can not tidy up: its folder is named by a process that is no more."""
    for folder in _MEMORY.glob(f"{_NAME}*"):
        with contextlib.suppress(PermissionError):
            try:
                os.kill(int(folder.name.removeprefix(_NAME)), 0)
            except ProcessLookupError:
                shutil.rmtree(folder, ignore_errors=True)
