"""The data model as it was given, read from its text."""

from __future__ import annotations

import re
from pathlib import Path

_TEXT = (Path(__file__).parent / "data_model.md").read_text(encoding="utf-8")
_ADDED, _GIVEN = _TEXT.split("## Given tables")


def _sections(text: str, mark: str) -> dict[str, str]:
    parts = re.split(rf"^{mark} (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _names(table: str) -> list[str]:
    """The names in the first cell of each row."""
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]


# Columns and indexes of the added tables; columns of the given ones.
ADDED_COLUMNS = {
    name: _names(_sections(text, "###")["Key Columns"]) for name, text in _sections(_ADDED, "##").items()
}
ADDED_INDEXES = {
    name: _names(_sections(text, "###").get("Indexes", "")) for name, text in _sections(_ADDED, "##").items()
}
GIVEN_COLUMNS = {
    name: [one.split()[0] for one in columns.partition(";")[0].split(", ")]
    for name, columns in re.findall(r"^- `(\w+)`\((.*?)\)", _GIVEN, flags=re.MULTILINE)
}
STATES = re.findall(r"`(\w+)`", re.findall(r"State machine: (.*)", _ADDED)[0])
UNIQUE = re.findall(r"\*\*Unique\*\*: `\((\w+), (\w+)\)`", _ADDED)
