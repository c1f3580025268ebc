"""The settings: keys, files that hold them, the addresses they name."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec

from holdfast.config import FILE_NAME, Config
from holdfast.errors import ConfigError
from holdfast.kit.vault.keys import Keyring, legacy_cipher
from holdfast.net import AddressGuard
from holdfast.plural import plural
from holdfast.runtime import KEYS_FILE, keys_in
from holdfast.service import CheckResult

ASK_S: Final = 5.0
SKEW_S_MAX: Final = 30.0
LEGACY_CHARACTERS_MIN: Final = 16
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SECRET_WORDS: Final = ("keys", "legacy_key", "password", "secret", "token", "://")


class ProbeResult(msgspec.Struct, frozen=True):
    """What an address said: whether it is Holdfast, and what time it has."""

    ours: bool
    at: datetime | None = None


def settings(config: Config) -> Iterator[CheckResult]:
    yield keys(config)
    yield legacy_key(config.legacy_key)
    yield keys_file(config.home / KEYS_FILE)
    yield settings_file(Path(FILE_NAME))
    yield allow(config.allow)
    yield from public_url(config)


def keys(config: Config) -> CheckResult:
    file = config.home / KEYS_FILE
    own = not config.keys
    if own and not file.exists():
        if config.environment == "production":
            remedy = "make one with `holdfast keys new ID` and set HOLDFAST_KEYS"
            return CheckResult("keys", False, "no key is set, and this is production", remedy)
        return CheckResult("keys", True, f"none yet; the first start makes one in {file}")
    try:
        ring = Keyring.read(keys_in(file) if own else config.keys)
    except (ConfigError, OSError) as fault:
        said = fault.message if isinstance(fault, ConfigError) else f"{file} can't be read"
        return CheckResult("keys", False, said, "make one with `holdfast keys new ID` and put it first")
    return CheckResult("keys", True, f"{ring.current} seals" + (f", from {file}" if own else ""))


def legacy_key(key: str) -> CheckResult:
    if not key:
        return CheckResult("legacy key", True, "none is set; only what the vault sealed can be opened")
    try:
        legacy_cipher(key)
    except ConfigError as fault:
        return CheckResult("legacy key", False, fault.message, "set it as the former system had it")
    if len(key) < LEGACY_CHARACTERS_MIN:
        remedy = "seal all with `holdfast keys rotate`, then remove the setting"
        return CheckResult("legacy key", False, f"it is weak: {plural(len(key), 'character')}", remedy)
    return CheckResult("legacy key", True, "opens values of the former system; remove it after a rotation")


def keys_file(file: Path) -> CheckResult:
    if not file.exists() or not stat.S_IMODE(file.stat().st_mode) & 0o077:
        return CheckResult("keys file", True, "only its owner can read it" if file.exists() else "none")
    return CheckResult("keys file", False, f"others can read {file}", f"chmod 600 {file}")


def settings_file(file: Path) -> CheckResult:
    if not file.exists():
        return CheckResult("settings file", True, f"no {file} here; settings are from the environment")
    told = file.read_text(errors="replace").lower()
    open_to_all = stat.S_IMODE(file.stat().st_mode) & 0o004
    if open_to_all and any(word in told for word in _SECRET_WORDS):
        remedy = f"chmod 640 {file}, or keep secrets in the environment"
        return CheckResult(
            "settings file", False, f"everybody can read {file}, which may hold secrets", remedy
        )
    return CheckResult("settings file", True, f"{file} is fit to be read by who can read it")


def allow(words: tuple[str, ...]) -> CheckResult:
    try:
        AddressGuard(allow=words)
    except ConfigError as fault:
        return CheckResult("allow", False, fault.message, "correct `allow` (HOLDFAST_ALLOW)")
    said = f"deliveries may also go to {', '.join(words)}" if words else "deliveries go to no inner address"
    return CheckResult("allow", True, said)


def public_url(config: Config) -> Iterator[CheckResult]:
    """How providers reach this server, and, once it answers, whether its clock is ours."""
    url = config.public_url
    fault = _fault_of(config, url)
    if not url or fault is not None:
        said = "not set; providers can't call back until HOLDFAST_PUBLIC_URL is"
        yield fault or CheckResult("public URL", True, said)
        return
    answer = ask(f"{url.rstrip('/')}/health")
    if not answer.ours:
        remedy = "start the server, and let your proxy pass this address on to it"
        yield CheckResult("public URL", False, f"{url}/health does not answer as Holdfast", remedy)
        return
    yield CheckResult("public URL", True, f"{url} answers")
    if answer.at is not None:
        yield skew(answer.at)


def _fault_of(config: Config, url: str) -> CheckResult | None:
    parts = urlsplit(url)
    local = parts.hostname in LOOPBACK
    if url and (parts.scheme not in ("http", "https") or not parts.hostname):
        return CheckResult(
            "public URL", False, f"{url} is no web address", "write it as https://hooks.example.com"
        )
    if parts.scheme == "http" and (not local or config.environment == "production"):
        where = " and this is production" if local else ""
        return CheckResult("public URL", False, f"{url} is not encrypted{where}", "providers want https://")
    return None


def skew(there: datetime) -> CheckResult:
    """Our clock against that of whoever answers for the public address."""
    apart = (datetime.now(UTC) - there).total_seconds()
    if abs(apart) <= SKEW_S_MAX:
        return CheckResult("clock skew", True, f"{abs(apart):.0f} s from the public address")
    said = f"this machine is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} the public address"
    return CheckResult("clock skew", False, said, "set the clock of whichever is wrong; let NTP keep both")


def ask(url: str) -> ProbeResult:
    """What answers at an http or https address; a critical server answers 503, and is there all the same."""
    try:
        with urlopen(url, timeout=ASK_S) as answer:
            return ProbeResult(b'"version"' in answer.read(1_000), _date(answer.headers.get("Date")))
    except HTTPError as refusal:
        with refusal:
            return ProbeResult(refusal.code == 503, _date(refusal.headers.get("Date")))
    except (OSError, ValueError):
        return ProbeResult(False)


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None
