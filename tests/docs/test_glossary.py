"""The glossary has every public name, every part of the kit and every operation's subject, and is linked."""

from __future__ import annotations

import re
from pathlib import Path
from pkgutil import iter_modules

import msgspec
import pytest

import holdfast
from holdfast import kit, operations
from holdfast.model.access import ROLES
from holdfast.service import Parts

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
# How modules of operations and parts of a service are called where they are not terms themselves.
PLAIN = {"routes", "start", "close", "attention", "checks", "loops", "queues", "metrics", "outboxes", "act"}


def _terms() -> set[str]:
    """The first column: terms, several in a row separated by commas."""
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)
    return {term.strip() for row in rows for term in row.split(",")}


def _singular(name: str) -> str:
    words = name.replace("_", " ")
    if words.endswith("ies"):
        return words[:-3] + "y"
    return words[:-1] if words.endswith("s") and not words.endswith("ss") else words


@pytest.mark.parametrize("name", sorted(set(holdfast.__all__) - {"__version__"}))
def test_every_public_name_is_in_the_glossary(name: str) -> None:
    assert f"`{name}" in GLOSSARY


@pytest.mark.parametrize("part", sorted(module.name for module in iter_modules(kit.__path__)))
def test_every_part_of_the_kit_is_in_the_glossary(part: str) -> None:
    assert f"`holdfast.kit.{part}`" in GLOSSARY


def test_what_operations_and_parts_are_about_is_explained() -> None:
    subjects = {module.name for module in iter_modules(operations.__path__)}
    parts = {field.name for field in msgspec.structs.fields(Parts)}
    wanted = {_singular(name) for name in (subjects | parts) - PLAIN}
    known = {term.lower() for term in _terms()}
    assert wanted - known - {term.removesuffix(" event") for term in known} == set()


def test_every_role_is_named() -> None:
    assert all(role in GLOSSARY for role in ROLES)


def test_no_term_is_explained_twice() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)
    terms = [term.strip() for row in rows for term in row.split(",") if term.strip() not in ("term", "---")]
    assert sorted(terms) == sorted(set(terms))


def test_readers_find_it_from_the_readme() -> None:
    assert "(docs/reference/glossary.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
