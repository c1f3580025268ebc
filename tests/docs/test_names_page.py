"""The page on names lists names that are gone and names that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "names.md").read_text(encoding="utf-8")
FILES = list((ROOT / "src" / "holdfast").rglob("*.py"))
SOURCE = {file: file.read_text(encoding="utf-8") for file in FILES}
ROWS = [
    [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| `")
]


def _defined(name: str) -> bool:
    pattern = re.compile(rf"^\s*(class|def|async def) {name}\b", re.MULTILINE)
    return any(pattern.search(text) for text in SOURCE.values())


def _exists(name: str) -> bool:
    """A class, function, method or attribute; a file; a package; or a name that is stored."""
    if name.endswith(".py"):
        return any(str(file).endswith(f"/{name}") for file in FILES)
    last = name.rpartition(".")[2]
    package = ROOT / "src" / Path(*name.split("."))
    inner = ROOT / "src" / "holdfast" / name
    quoted = any(f'"{name}' in text for text in SOURCE.values())
    return _defined(last) or package.is_dir() or inner.is_dir() or quoted


def test_every_name_that_the_page_says_is_used_exists() -> None:
    assert len(ROWS) >= 10
    for _, _, now, *_ in ROWS:
        assert now
        assert [name for name in now if not _exists(name)] == []


def test_old_classes_are_gone() -> None:
    for old, _, now, *_ in ROWS:
        classes = [name for name in old if name[0].isupper() and name not in ("Page", *now)]
        assert [name for name in classes if _defined(name)] == []
