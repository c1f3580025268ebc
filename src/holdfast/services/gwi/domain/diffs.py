"""Unified diffs: the files and hunks of a change, and the lines it adds. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

_FILE: Final = re.compile(r"^diff --git a/(?P<old>.+?) b/(?P<new>.+)$")
_HUNK: Final = re.compile(r"^@@ -\d+(?:,(?P<old>\d+))? \+(?P<start>\d+)(?:,(?P<new>\d+))? @@")


class AddedLine(msgspec.Struct, frozen=True):
    """A line that a change adds, by its number in the new file."""

    number: int
    text: str


class FileDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The change of one file."""

    path: str
    hunks: int = 0
    removed: int = 0
    added: Sequence[AddedLine] = ()
    deleted: bool = False

    @property
    def lines(self) -> int:
        """Added and removed lines."""
        return len(self.added) + self.removed


def parse_diff(text: str) -> list[FileDiff]:
    """The files of a diff in git's format; files without hunks, such as binary ones, have none.

    Example: `sum(one.lines for one in parse_diff(diff))`
    """
    return [_file(lines) for lines in _sections(text)]


def _sections(text: str) -> Iterator[list[str]]:
    section: list[str] = []
    # Not splitlines(): a line may hold other separators, which are part of its text.
    for line in text.split("\n"):
        if _FILE.match(line):
            if section:
                yield section
            section = []
        if section or _FILE.match(line):
            section.append(line)
    if section:
        yield section


def _file(lines: list[str]) -> FileDiff:
    named = _FILE.match(lines[0])
    assert named is not None
    added: list[AddedLine] = []
    hunks = removed = number = old_left = new_left = 0
    for line in lines[1:]:
        if not old_left and not new_left:
            hunk = _HUNK.match(line)
            if hunk is not None:
                hunks, number = hunks + 1, int(hunk["start"])
                old_left, new_left = int(hunk["old"] or 1), int(hunk["new"] or 1)
            continue
        if line.startswith("+"):
            added.append(AddedLine(number, line[1:]))
            number, new_left = number + 1, new_left - 1
        elif line.startswith("-"):
            removed, old_left = removed + 1, old_left - 1
        elif not line.startswith("\\"):
            number, old_left, new_left = number + 1, old_left - 1, new_left - 1
    deleted = any(line.startswith("deleted file mode") for line in lines[1:5])
    path = named["old"] if deleted else named["new"]
    return FileDiff(path=path, hunks=hunks, removed=removed, added=added, deleted=deleted)


def diff_of(path: str, old: str | None, new: str | None) -> str:
    """The diff of one file in git's format; None where it does not exist.

    Example: `diff_of("a.txt", None, "new\\n")`
    """
    lines = difflib.unified_diff(
        _lines(old or ""), _lines(new or ""), "/dev/null" if old is None else f"a/{path}",
        "/dev/null" if new is None else f"b/{path}", lineterm="",
    )  # fmt: skip
    mode = ["new file mode 100644"] if old is None else ["deleted file mode 100644"] if new is None else []
    return "\n".join([f"diff --git a/{path} b/{path}", *mode, *lines]) + "\n"


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else [*lines[:-1], f"{lines[-1]}\n\\ No newline at end of file"]
