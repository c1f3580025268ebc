"""Files and folders of this user alone: what a process keeps is nobody else's to read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_OTHERS: Final = 0o077


def make_folder(path: Path) -> None:
    """Make a folder that its owner alone can enter; one that exists stays as it is."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def create_file(path: Path) -> None:
    """Create an empty file, and its folder, for its owner alone; one that exists stays as it is."""
    make_folder(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDONLY, 0o600))


def exposed(paths: Iterable[Path]) -> list[Path]:
    """Those of the paths that other users can reach: neither they nor the folder they are in are private."""
    return [
        path
        for path in paths
        if path.exists() and _is_open(path) and (path.is_dir() or _is_open(path.parent))
    ]


def _is_open(path: Path) -> bool:
    return bool(stat.S_IMODE(path.stat().st_mode) & _OTHERS)
