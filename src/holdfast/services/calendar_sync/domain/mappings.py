"""Parsing of a source's rows into a map from primary to secondary addresses; bad rows are reported."""

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


class ParsedMappings(msgspec.Struct, frozen=True):
    """The map, the rows that can't be used, the primaries of those rows, and primaries with inactive rows."""

    entries: Entries
    bad: tuple[BadMappingRow, ...] = ()
    doubtful: frozenset[str] = frozenset()
    inactive: frozenset[str] = frozenset()


def parse(rows: Iterable[MappingRow]) -> ParsedMappings:
    """Validate rows; of several for one primary the last valid one wins."""
    entries: dict[str, tuple[str, ...]] = {}
    bad: list[BadMappingRow] = []
    doubtful: set[str] = set()
    inactive: set[str] = set()
    for row in rows:
        primary = row.primary.strip().lower()
        secondaries = _secondaries(row, primary)
        reason = _invalid_reason(row, primary, secondaries)
        if reason:
            bad.append(BadMappingRow(row.number, reason))
            doubtful.add(primary)
        elif _active(row):
            entries[primary] = secondaries
        else:
            entries.pop(primary, None)
            inactive.add(primary)
    return ParsedMappings(entries, tuple(bad), frozenset(doubtful - entries.keys()), frozenset(inactive))


def _active(row: MappingRow) -> bool | None:
    """None for a status that says neither."""
    return _STATUSES.get(row.status.strip().lower())


def _secondaries(row: MappingRow, primary: str) -> tuple[str, ...]:
    given = (one.strip().lower() for one in row.secondaries)
    return tuple(dict.fromkeys(one for one in given if one and one != primary))


def _invalid_reason(row: MappingRow, primary: str, secondaries: Sequence[str]) -> str:
    if not _is_address(primary):
        return f"{_quote(row.primary)} is no e-mail address"
    if "/" in primary:
        return f"{_quote(row.primary)} has a '/', which no engine keeps in an id"
    if _active(row) is None:
        return f"the status {_quote(row.status)} is neither active nor inactive"
    if not _active(row):
        return ""
    wrong = [one for one in secondaries if not _is_address(one)]
    if wrong:
        return f"{_quote(wrong[0])} is no e-mail address"
    if len(secondaries) > SECONDARIES_MAX:
        return f"{len(secondaries)} secondary addresses; at most {SECONDARIES_MAX} are taken"
    if not secondaries:
        return "no secondary address"
    return ""


def _is_address(text: str) -> bool:
    return len(text) <= 254 and _ADDRESS.fullmatch(text) is not None


def _quote(text: str) -> str:
    return repr(text.strip()[:60])


def merge_mappings(parsed: ParsedMappings, before: Entries) -> dict[str, tuple[str, ...]]:
    """Return the new map; a primary whose row became invalid keeps its previous mapping."""
    previous = {primary: before[primary] for primary in parsed.doubtful if primary in before}
    return {**parsed.entries, **previous}


def is_in_domain(address: str, entries: Entries) -> bool:
    """Whether an address is in the domain of somebody mapped, for whom credentials can be expected."""
    domain = address.rpartition("@")[2]
    valid = _is_address(address) and "/" not in address
    return valid and any(one.endswith(f"@{domain}") for one in entries)


def digest(entries: Entries) -> str:
    """Return a digest of the map that does not depend on the order of rows."""
    return hashlib.sha256(msgspec.json.encode(sorted(entries.items()))).hexdigest()[:32]
