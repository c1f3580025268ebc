"""The repository of the demo's organisation: files, issues, and what a language model writes for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

WIDTH: Final = "def width(tide):\n    return tide.high - tide.low\n"
TABLE: Final = "def table(tides):\n    return [width(tide) for tide in tides]\n"
# The language model's answers to the coder and to the resolver.
ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "CodeAnswer": {
        "summary": "Skip stations without tides in the table",
        "files": [
            {
                "path": "tides/table.py", "deleted": False,
                "content": TABLE.replace(" in tides]", " in tides if tide is not None]"),
            },
            {
                "path": "tests/test_table.py", "deleted": False,
                "content": "def test_a_missing_station_has_no_row():\n    assert table([None]) == []\n",
            },
        ],
    },
    "ResolvedFile": {"content": "def width(tide):\n    return max(0, tide.high - tide.low)\n"},
}  # fmt: skip
FILES: Final = {
    "README.md": "# Tides\n\nReads the tables of the harbour.\n",
    "tides/width.py": WIDTH, "tides/table.py": TABLE, "tests/test_width.py": "def test_width():\n    pass\n",
}  # fmt: skip
ISSUES: Final[Sequence[tuple[str, list[str]]]] = (
    ("The width of a neap tide is negative", ["bug", "urgent"]),
    ("Explain the units in the docs", ["low"]),
    ("Add tests for the table of a whole year", []),
    ("Critical: a missing station breaks the table", ["bug"]),
    ("Show the tide of tomorrow", ["enhancement"]),
)
