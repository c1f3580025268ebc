"""The machine and the settings: what can be known before the store is opened."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

from holdfast.config import FILE_NAME, Config
from holdfast.errors import ConfigError
from holdfast.kit.vault.keys import Keyring
from holdfast.runtime import KEYS_FILE
from holdfast.service import Finding

FREE_BYTES_MIN: Final = 500_000_000
YEARS_BELIEVED: Final = range(2025, 2100)
JUMP_S_MAX: Final = 0.5
ASK_S: Final = 5.0
_SECRET_WORDS: Final = ("keys", "password", "secret", "token", "://")


def machine(config: Config) -> Iterator[Finding]:
    """Every check that needs no store."""
    yield home(config.home)
    yield disk(config.home)
    yield keys(config)
    yield keys_file(config.home / KEYS_FILE)
    yield settings_file(Path(FILE_NAME))
    yield clock()
    yield port(config)
    yield public_url(config.public_url)


def home(path: Path) -> Finding:
    place = next(one for one in (path, *path.parents) if one.exists())
    if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
        return Finding("home", True, f"{path} can be written")
    who = f"give this user the right to write in {place}, or choose another with HOLDFAST_HOME"
    return Finding("home", False, f"{path} can't be written", who)


def disk(path: Path) -> Finding:
    place = next(one for one in (path, *path.parents) if one.exists())
    free = shutil.disk_usage(place).free
    said = f"{free / 1e9:.1f} GB free"
    if free >= FREE_BYTES_MIN:
        return Finding("disk", True, said)
    return Finding("disk", False, said, "make room: a full disk stops every commit")


def keys(config: Config) -> Finding:
    file = config.home / KEYS_FILE
    own = not config.keys
    if own and not file.exists():
        if config.environment == "production":
            remedy = "make one with `holdfast keys new ID` and set HOLDFAST_KEYS"
            return Finding("keys", False, "no key is set, and this is production", remedy)
        return Finding("keys", True, f"none yet; the first start makes one in {file}")
    try:
        ring = Keyring.read(file.read_text() if own else config.keys)
    except (ConfigError, OSError) as fault:
        said = fault.message if isinstance(fault, ConfigError) else f"{file} can't be read"
        return Finding("keys", False, said, "make one with `holdfast keys new ID` and put it first")
    return Finding("keys", True, f"{ring.current} seals" + (f", from {file}" if own else ""))


def keys_file(file: Path) -> Finding:
    if not file.exists() or not stat.S_IMODE(file.stat().st_mode) & 0o077:
        return Finding("keys file", True, "only its owner can read it" if file.exists() else "none")
    return Finding("keys file", False, f"others can read {file}", f"chmod 600 {file}")


def settings_file(file: Path) -> Finding:
    if not file.exists():
        return Finding("settings file", True, f"no {file} here; settings are from the environment")
    told = file.read_text(errors="replace").lower()
    open_to_all = stat.S_IMODE(file.stat().st_mode) & 0o004
    if open_to_all and any(word in told for word in _SECRET_WORDS):
        remedy = f"chmod 640 {file}, or keep secrets in the environment"
        return Finding("settings file", False, f"everybody can read {file}, which may hold secrets", remedy)
    return Finding("settings file", True, f"{file} is fit to be read by who can read it")


def clock() -> Finding:
    wall, steady = time.time(), time.monotonic()
    year = datetime.fromtimestamp(wall, UTC).year
    if year not in YEARS_BELIEVED:
        return Finding("clock", False, f"the clock says {year}", "set the clock; let NTP keep it")
    apart = abs((time.time() - wall) - (time.monotonic() - steady))
    if apart > JUMP_S_MAX:
        return Finding("clock", False, f"the clock jumped by {apart:.1f} s", "let NTP slew it, not step it")
    return Finding("clock", True, f"{datetime.fromtimestamp(wall, UTC):%Y-%m-%d %H:%M:%S} UTC")


def port(config: Config) -> Finding:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    try:
        with socket.create_server((config.host, config.port), family=family):
            return Finding("port", True, f"{config.port} on {config.host} is free")
    except OSError as fault:
        if _answers(f"http://{config.host}:{config.port}/health"):
            return Finding("port", True, f"{config.port} on {config.host} is served by Holdfast")
        remedy = "stop what uses it, or choose another with --port or PORT"
        return Finding("port", False, f"{config.port} on {config.host}: {fault.strerror or fault}", remedy)


def public_url(url: str) -> Finding:
    if not url:
        return Finding("public URL", True, "not set; providers can't call back until HOLDFAST_PUBLIC_URL is")
    parts = urlsplit(url)
    local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return Finding(
            "public URL", False, f"{url} is no web address", "write it as https://hooks.example.com"
        )
    if parts.scheme == "http" and not local:
        return Finding("public URL", False, f"{url} is not encrypted", "providers want https://")
    if not _answers(f"{url.rstrip('/')}/health"):
        remedy = "start the server, and let your proxy pass this address on to it"
        return Finding("public URL", False, f"{url}/health does not answer as Holdfast", remedy)
    return Finding("public URL", True, f"{url} answers")


def _answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=ASK_S) as answer:  # the scheme is http or https by now
            return b'"version"' in answer.read(1_000)
    except URLError as fault:
        # A critical server answers 503, and is there all the same.
        return getattr(fault, "code", None) == 503
    except (OSError, ValueError):
        return False
