"""The machine: what can be known before the store is opened."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast.cli.checkup.settings import ask
from holdfast.config import Config
from holdfast.private_files import exposed
from holdfast.service import CheckResult
from holdfast.store_copy import local_file

FREE_BYTES_MIN: Final = 500_000_000
YEARS_BELIEVED: Final = range(2025, 2100)
JUMP_S_MAX: Final = 0.5


def machine(config: Config) -> Iterator[CheckResult]:
    """Every check that needs no store."""
    yield home(config)
    yield private_files(config)
    yield disk(config.home)
    yield clock()
    yield port(config)


def home(config: Config) -> CheckResult:
    path = config.home
    if config.environment == "production" and path.is_relative_to(tempfile.gettempdir()):
        said = f"{path} is a temporary folder, and this is production"
        return CheckResult("home", False, said, "choose one that stays, with HOLDFAST_HOME")
    place = next(one for one in (path, *path.parents) if one.exists())
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return CheckResult("home", True, f"{path} can be written")
    who = f"give this user the right to write in {place}, or choose another with HOLDFAST_HOME"
    return CheckResult("home", False, f"{path} can't be written", who)


def private_files(config: Config) -> CheckResult:
    """Whether other users of this machine can read the home folder or the store's files."""
    file = local_file(config.store)
    files = (
        [] if file is None else [file.with_name(file.name + end) for end in ("", "-wal", "-shm", "-board")]
    )
    found = exposed([config.home, *files])
    if not found:
        return CheckResult("private files", True, "only this user can read them")
    remedy = "; ".join(f"chmod {'700' if path.is_dir() else '600'} {path}" for path in found)
    return CheckResult("private files", False, f"others can read {', '.join(map(str, found))}", remedy)


def disk(path: Path, name: str = "disk") -> CheckResult:
    place = next(one for one in (path, *path.parents) if one.exists())
    free = shutil.disk_usage(place).free
    said = f"{free / 1e9:.1f} GB free"
    if free >= FREE_BYTES_MIN:
        return CheckResult(name, True, said)
    return CheckResult(name, False, said, "make room: a full disk stops every commit")


def clock() -> CheckResult:
    wall, steady = time.time(), time.monotonic()
    year = datetime.fromtimestamp(wall, UTC).year
    if year not in YEARS_BELIEVED:
        return CheckResult("clock", False, f"the clock says {year}", "set the clock; let NTP keep it")
    apart = abs((time.time() - wall) - (time.monotonic() - steady))
    if apart > JUMP_S_MAX:
        return CheckResult(
            "clock", False, f"the clock jumped by {apart:.1f} s", "let NTP slew it, not step it"
        )
    return CheckResult("clock", True, f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%d %H:%M:%S} UTC")


def port(config: Config) -> CheckResult:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        with socket.create_server((config.host, config.port), family=family):
            return CheckResult("port", True, f"{config.port} on {config.host} is free")
    except OSError as fault:
        if ask(f"http://{config.host}:{config.port}/health").ours:
            return CheckResult("port", True, f"{config.port} on {config.host} is served by Holdfast")
        remedy = "stop what uses it, or choose another with --port or PORT"
        return CheckResult(
            "port", False, f"{config.port} on {config.host}: {fault.strerror or fault}", remedy
        )
