"""Rows of a source as a map from primary to secondary addresses; what can't be used is told by its row."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from holdfast.services.calendar_sync.models import ADDRESS_PATTERN, BadMappingRow

SECONDARIES_MAX: Final = 20
_ADDRESS: Final = re.compile(ADDRESS_PATTERN)
_STATUSES: Final = {"": True, "active": True, "inactive": False}


class MappingRow(msgspec.Struct, frozen=True):
    """One row as a source has it: its number there, and the text of its cells."""

    number: int
    primary: str
    secondaries: Sequence[str]
    status: str = ""


Entries = Mapping[str, tuple[str, ...]]


class Parsed(msgspec.Struct, frozen=True):
    """What a source says: the map, the rows that can't be used, and the primaries those were about; and
    who is mapped no longer because a row says so."""

    entries: Entries
    bad: tuple[BadMappingRow, ...] = ()
    doubtful: frozenset[str] = frozenset()
    inactive: frozenset[str] = frozenset()


def parse(rows: Iterable[MappingRow]) -> Parsed:
    """Check and gather rows; of several for one primary the last one that can be used wins."""
    entries: dict[str, tuple[str, ...]] = {}
    bad: list[BadMappingRow] = []
    doubtful: set[str] = set()
    inactive: set[str] = set()
    for row in rows:
        primary = row.primary.strip().lower()
        secondaries = _secondaries(row, primary)
        reason = _fault(row, primary, secondaries)
        if reason:
            bad.append(BadMappingRow(row.number, reason))
            doubtful.add(primary)
        elif _active(row):
            entries[primary] = secondaries
        else:
            entries.pop(primary, None)
            inactive.add(primary)
    return Parsed(entries, tuple(bad), frozenset(doubtful - entries.keys()), frozenset(inactive))


def _active(row: MappingRow) -> bool | None:
    """None for a status that says neither."""
    return _STATUSES.get(row.status.strip().lower())


def _secondaries(row: MappingRow, primary: str) -> tuple[str, ...]:
    given = (one.strip().lower() for one in row.secondaries)
    return tuple(dict.fromkeys(one for one in given if one and one != primary))


def _fault(row: MappingRow, primary: str, secondaries: Sequence[str]) -> str:
    if not _is_address(primary):
        return f"{_shown(row.primary)} is no e-mail address"
    if "/" in primary:
        return f"{_shown(row.primary)} has a '/', which no engine keeps in an id"
    if _active(row) is None:
        return f"the status {_shown(row.status)} is neither active nor inactive"
    if not _active(row):
        return ""
    wrong = [one for one in secondaries if not _is_address(one)]
    if wrong:
        return f"{_shown(wrong[0])} is no e-mail address"
    if len(secondaries) > SECONDARIES_MAX:
        return f"{len(secondaries)} secondary addresses; at most {SECONDARIES_MAX} are taken"
    if not secondaries:
        return "no secondary address"
    return ""


def _is_address(text: str) -> bool:
    return len(text) <= 254 and _ADDRESS.fullmatch(text) is not None


def _shown(text: str) -> str:
    return repr(text.strip()[:60])


def kept(parsed: Parsed, before: Entries) -> dict[str, tuple[str, ...]]:
    """The new map; whoever's row has become unusable keeps what they had, so that a slip costs nobody."""
    held = {primary: before[primary] for primary in parsed.doubtful if primary in before}
    return {**parsed.entries, **held}


def is_in_domain(address: str, entries: Entries) -> bool:
    """Whether an address is in the domain of somebody mapped, for whom credentials can be expected."""
    domain = address.rpartition("@")[2]
    valid = _is_address(address) and "/" not in address
    return valid and any(one.endswith(f"@{domain}") for one in entries)


def digest(entries: Entries) -> str:
    """The same for the same map, wherever its rows stand."""
    return hashlib.sha256(msgspec.json.encode(sorted(entries.items()))).hexdigest()[:32]
