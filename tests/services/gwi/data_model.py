"""The data model as it was given, read from its text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

_TEXT = (Path(__file__).parent / "data_model.md").read_text(encoding="utf-8")
_TOKEN = re.compile(r"'[^']*'|[A-Za-z_]\w*|[^\s\w]")


class Given(Struct, frozen=True):
    """A type of the text: a name, the values of an enumeration, a list, a map, or fields."""

    kind: str
    values: tuple[str, ...] = ()
    item: Any = None
    fields: dict[str, tuple[bool, Any]] = {}  # whether it may be missing, and its type


class _Reader:
    """Reads one interface."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = _TOKEN.findall(text)

    def fields(self) -> dict[str, tuple[bool, Given]]:
        found: dict[str, tuple[bool, Given]] = {}
        self._take("{")
        while self._next() != "}":
            name, optional = self._tokens.pop(0), self._next() == "?"
            if optional:
                self._take("?")
            self._take(":")
            found[name] = (optional, self._union())
            if self._next() == ";":
                self._take(";")
        self._take("}")
        return found

    def _union(self) -> Given:
        if self._next() == "|":
            self._take("|")
        first = self._type()
        values = [*first.values]
        while self._next() == "|":
            self._take("|")
            values += self._type().values
        return Given("enum", tuple(values)) if values else first

    def _type(self) -> Given:
        if self._next() == "{":
            return Given("object", fields=self.fields())
        word = self._tokens.pop(0)
        if word.startswith("'"):
            return Given("enum", (word.strip("'"),))
        made = Given(word)
        if word in ("Array", "Record"):
            self._take("<")
            if word == "Record":
                self._type()
                self._take(",")
            made = Given("list" if word == "Array" else "map", item=self._union())
            self._take(">")
        while self._next() == "[":
            self._take("[")
            self._take("]")
            made = Given("list", item=made)
        return made

    def _next(self) -> str:
        return self._tokens[0]

    def _take(self, token: str) -> None:
        assert self._tokens.pop(0) == token


def _section(name: str) -> str:
    return _TEXT.split(f"## {name}\n")[1].split("\n## ")[0]


def _rows(name: str) -> list[list[str]]:
    lines = [line.strip("|").split("|") for line in _section(name).splitlines() if line.startswith("|")]
    return [[cell.strip(" `") for cell in line] for line in lines[2:]]


def _names(path: str) -> str:
    """The collections of a path, without the ids between them."""
    return "/".join(path.split("/")[::2])


COLLECTIONS = [_names(path) for path in re.findall(r"^- `(.+)`$", _section("Collections"), re.MULTILINE)]
IDS = _rows("Ids")
FIELDS = {
    _names(path): _Reader(text).fields()
    for path, text in re.findall(
        r"### `(.+?)`\n\n```typescript\ninterface \w+ (.*?)```", _section("Fields"), re.DOTALL
    )
}
FIELDS["gwi_runs/steps"] = FIELDS["gwi_runs"]["steps"][1].item.fields
ACCESS = {name: row[1:] for row in _rows("Access") for name in row[0].split(", ")}
INDEXES = [
    (
        collection, [tuple(field.split()) for field in fields.split(", ")],
        "COLLECTION_GROUP" if group else "COLLECTION",
    )
    for collection, fields, group in re.findall(
        r"^- `(\w+) \((.+?)\)`( \(collection group\))?$", _section("Indexes"), re.MULTILINE
    )
]  # fmt: skip
