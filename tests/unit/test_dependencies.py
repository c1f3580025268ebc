"""Versions of dependencies: what pyproject.toml allows and what requirements/ installs and tries agree."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
RUNTIME = [
    Requirement(one)
    for one in (*PROJECT["dependencies"], *EXTRAS["firestore"], *EXTRAS["otel"], *EXTRAS["postgres"])
]
TOOLS = [one for one in map(Requirement, EXTRAS["dev"]) if one.name != PROJECT["name"]]
# The first version without any advisory that was known when the floor was set.
MENDED = {
    "aiohttp": "3.14.3",  # CVE-2026-69244: reads past the end of a malformed answer
    "apsw": "3.51.3",  # SQLite's WAL-reset bug: two processes that write and checkpoint corrupt a database
    "click": "8.4.2",
    "cryptography": "50.0.0",  # CVE-2026-69247
    "h11": "0.16.0",
    "jinja2": "3.1.6",
    "joserfc": "1.7.4",  # CVE-2026-75509: an array of issuers passes for the one expected
    "litestar": "2.20.0",
    "msgpack": "1.2.1",
    "protobuf": "5.29.6",
    "requests": "2.33.1",
    "urllib3": "2.7.0",
}


def _pins(file: str) -> dict[str, list[Requirement]]:
    found: dict[str, list[Requirement]] = {}
    for line in (ROOT / "requirements" / file).read_text().splitlines():
        pin = Requirement(line)
        found.setdefault(pin.name, []).append(pin)
    return found


def _version(pin: Requirement) -> Version:
    return Version(str(pin.specifier).removeprefix("=="))


@pytest.mark.parametrize("file", ["locked.txt", "lowest.txt"])
def test_a_lock_file_names_versions_and_nothing_else(file: str) -> None:
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9.-]+==[\w.]+( ; [^/@]+)?", line)] == []


@pytest.mark.parametrize("file", ["locked.txt", "lowest.txt"])
def test_a_lock_file_has_every_dependency_in_a_version_that_is_allowed(file: str) -> None:
    pins = _pins(file)
    assert [
        str(one)
        for one in (*RUNTIME, *TOOLS)
        if one.name not in pins or not all(one.specifier.contains(_version(pin)) for pin in pins[one.name])
    ] == []


def test_the_lowest_version_of_each_dependency_is_the_one_tried() -> None:
    pins = _pins("lowest.txt")
    floors = {
        one.name: min(Version(s.version) for s in one.specifier if s.operator == ">=") for one in RUNTIME
    }
    assert {name: _version(pins[name][0]) for name in floors} == floors


@pytest.mark.parametrize("file", ["locked.txt", "lowest.txt"])
def test_no_version_that_is_tried_or_installed_has_a_known_advisory(file: str) -> None:
    pins = _pins(file)
    tried = {name: _version(pin) for name in MENDED for pin in pins.get(name, [])}
    assert {name: version for name, version in tried.items() if version < Version(MENDED[name])} == {}
    assert {"aiohttp", "apsw", "cryptography", "joserfc"} <= tried.keys()
