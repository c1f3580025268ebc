"""Pages, commands and messages use the words that other products use."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import holdfast
from holdfast.plural import noun_for, plural

SOURCES: Final = Path(holdfast.__file__).parent
# A phrase of our own, and what people read instead.
USUAL: Final = {
    "the same again": "Repeat password",
    "turned {{": "last ran",
    "not turned": "has not run",
    ">loops<": "Workers",
    "no loops": "no workers",
    "the loops in this process": "the workers",
    "put out": "Created",
    "what it said": "Response body",
    "ways to look": "Indexes",
    ">deaths<": "Times dead",
    "doesn't fit": "Invalid value",
    "tell rms": "Send to RMS",
    "tell the rms": "Send to the RMS",
    "not told": "not sent",
    "not been told": "not sent",
    "on the way": "In flight",
    "in the way": "Problem",
    "calculate anew": "Recalculate",
    "not for you": "Forbidden",
    "not just now": "Service unavailable",
    "mend the": "Restore the",
    "given up": "dead, or timed out",
    "give it back": "Restore access",
    "what it keeps": "Description",
    "what became of it": "Result",
    "dead deliveries": "dead letters",
    "dead mail": "dead letters",
}  # fmt: skip


def _strings(path: Path) -> Iterator[str]:
    """The strings of a module: messages, labels, help; and its docstrings, which commands and routes show."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _texts() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCES.rglob("*")):
        name = str(path.relative_to(SOURCES))
        if path.suffix == ".py":
            yield from ((name, text) for text in _strings(path))
        elif path.suffix in (".html", ".js"):
            yield name, path.read_text()


def test_every_text_has_the_usual_words() -> None:
    found = [
        f"{name}: {phrase!r}; say {better!r}"
        for name, text in _texts()
        for phrase, better in USUAL.items()
        if re.search(rf"(?<![a-z]){re.escape(phrase)}(?![a-z])", " ".join(text.lower().split()))
    ]
    assert found == []


def test_a_count_agrees_with_its_noun() -> None:
    assert [plural(count, "endpoint") for count in (0, 1, 2)] == ["0 endpoints", "1 endpoint", "2 endpoints"]
    assert plural(1_000, "entry", "entries") == "1,000 entries"
    assert (plural(1.5, "day"), noun_for(1, "run"), noun_for(2, "run")) == ("1.5 days", "run", "runs")


def test_no_count_stands_before_a_fixed_plural() -> None:
    """Whatever is counted in a template or a message goes through the one function for it."""
    counted = re.compile(r"\|(?:number|length) *\}\} (?!ms\b)[a-z]+s\b|' if [^{}]* == 1 else 's'")
    pages = [(path.name, counted.findall(path.read_text())) for path in SOURCES.rglob("*.html")]
    assert [(name, found) for name, found in pages if found] == []
    literals = [
        f"{path.relative_to(SOURCES)}: {ast.unparse(node)}"
        for path in sorted(SOURCES.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.JoinedStr) and _counts(node)
    ]
    assert literals == []


def _counts(node: ast.JoinedStr) -> bool:
    """Whether a length is followed by a noun in the plural."""
    pairs = zip(node.values, node.values[1:], strict=False)
    return any(
        isinstance(value, ast.FormattedValue)
        and ast.unparse(value.value).startswith("len(")
        and isinstance(after, ast.Constant)
        and re.match(r" [a-z]+s\b", str(after.value)) is not None
        for value, after in pairs
    )
