"""The documentation names modules, classes and commands that exist."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from holdfast.cli import app

ROOT = Path(__file__).parents[2]
SESSION_SETTINGS = ("holdfast.tenant", "holdfast.user", "holdfast.role")  # of PostgreSQL
# The page on names is about those that are gone.
PAGES = [
    page
    for page in [
        ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"),
    ]
    if page.name != "names.md"
]  # fmt: skip
SOURCE = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "src").rglob("*.py"))
# Of other packages, and of examples on the pages themselves.
OTHERS = {"UnsetType", "Meta", "Struct", "Protocol", "Enum", "Any", "UNSET"}


def _code(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_class_on_the_page_exists(page: Path) -> None:
    declared = set(re.findall(r"^class (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE))
    words = r"(?<![\w./-])[A-Z][a-z]+[A-Z]\w+(?![\w/-])"
    named = {name for code in _code(page) for name in re.findall(words, code)}
    assert {name for name in named - declared - OTHERS if not re.search(rf"\b{name}\b", SOURCE)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_module_on_the_page_exists(page: Path) -> None:
    for code in _code(page):
        for path in re.findall(r"(?<![\w./-])holdfast(?:\.[a-z_]+)+", code):
            if path.endswith((".toml", ".db")) or path in SESSION_SETTINGS:
                continue
            parent, _, name = path.rpartition(".")
            try:
                importlib.import_module(path)
            except ModuleNotFoundError:
                assert hasattr(importlib.import_module(parent), name), f"{page.name}: {path}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_on_the_page_exists(page: Path) -> None:
    known = set(get_command(app).list_commands(None))  # type: ignore[attr-defined]
    for code in _code(page):
        words = re.match(r"holdfast ([a-z][a-z-]+)", code)
        assert words is None or words[1] in known, f"{page.name}: {code}"
