"""Conflicts of a three-way merge: which can be resolved without a doubt, and how. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

# Longer than any that a file may hold itself.
MARKER_SIZE: Final = 31
_OURS: Final = "<" * MARKER_SIZE
_BASE: Final = "|" * MARKER_SIZE
_SPLIT: Final = "=" * MARKER_SIZE
_THEIRS: Final = ">" * MARKER_SIZE
_LISTED: Final = re.compile(r"^\s*(import\s|from\s\S+\simport\s|#include\s|use\s|using\s|require\b|[-*]\s)")


class Conflict(msgspec.Struct, frozen=True):
    """A place where both sides changed the same lines."""

    base: tuple[str, ...]
    ours: tuple[str, ...]
    theirs: tuple[str, ...]


class MergedText(msgspec.Struct, frozen=True):
    """A merged file; with `open` conflicts its text has the usual markers."""

    text: str
    resolved: int
    open: int


def resolve_text(marked: str) -> MergedText:
    """Resolve what is certain in the output of `git merge-file --diff3`; keep the rest, marked.

    Example: `resolve_text(marked).open == 0`
    """
    lines: list[str] = []
    resolved = unresolved = 0
    for part in _parts(marked):
        if isinstance(part, str):
            lines.append(part)
            continue
        decided = resolve(part)
        if decided is None:
            unresolved += 1
            lines += _marked(part)
        else:
            resolved += 1
            lines += decided
    return MergedText("\n".join(lines), resolved, unresolved)


def resolve(conflict: Conflict) -> tuple[str, ...] | None:
    """The lines that both sides surely want, or None where somebody must decide.

    Certain are: a side that only changed white space; a side whose lines the other holds all, in order;
    additions of both to a list, such as imports or a changelog.
    """
    base, ours, theirs = conflict.base, conflict.ours, conflict.theirs
    if _same(ours, theirs) or _same(base, theirs):
        return ours
    if _same(base, ours):
        return theirs
    if not base:
        if _contains(ours, theirs):
            return ours
        if _contains(theirs, ours):
            return theirs
        if all(_LISTED.match(line) for line in (*ours, *theirs)):
            return (*ours, *(line for line in theirs if line not in ours))
    return None


def _same(one: Sequence[str], other: Sequence[str]) -> bool:
    return ["".join(line.split()) for line in one if line.strip()] == [
        "".join(line.split()) for line in other if line.strip()
    ]


def _contains(whole: Sequence[str], part: Sequence[str]) -> bool:
    remaining = iter(whole)
    return bool(part) and all(line in remaining for line in part)


def _parts(marked: str) -> list[str | Conflict]:
    parts: list[str | Conflict] = []
    sides: dict[str, list[str]] = {}
    side = ""
    for line in marked.split("\n"):
        marker = line[:MARKER_SIZE]
        if marker == _OURS and not side:
            sides, side = {_OURS: [], _BASE: [], _SPLIT: []}, _OURS
        elif side and marker in (_BASE, _SPLIT):
            side = marker
        elif side and marker == _THEIRS:
            parts.append(Conflict(tuple(sides[_BASE]), tuple(sides[_OURS]), tuple(sides[_SPLIT])))
            side = ""
        elif side:
            sides[side].append(line)
        else:
            parts.append(line)
    return parts


def _marked(conflict: Conflict) -> list[str]:
    return ["<<<<<<< ours", *conflict.ours, "=======", *conflict.theirs, ">>>>>>> theirs"]
