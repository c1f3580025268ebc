"""Text that is consumed phrase by phrase: what is left in the end is the title.

A consumed phrase is blanked with as many `BLANK` characters, so that positions stay those of the original
text and no later phrase is read across it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

BLANK = "\x00"
CHARACTERS_MAX = 2_000
# One character each, so that positions stay: dashes, quotes and spaces that phones put in.
_PLAIN = str.maketrans(
    {"–": "-", "—": "-", "−": "-", "’": "'", "‘": "'", "“": '"', "”": '"', "\u00a0": " ", "\u202f": " "}
)
_CONNECTORS = r"on|at|from|to|by|for|and|in|until|till|starting|@"
_DANGLING_END = re.compile(rf"(?:^|\s)(?:{_CONNECTORS}|the)$", re.IGNORECASE)
_DANGLING_START = re.compile(rf"^(?:{_CONNECTORS})(?:\s|$)", re.IGNORECASE)
_EMPTY_BRACKETS = re.compile(r"\(\s*\)|\[\s*\]")
_LOOSE_PUNCTUATION = re.compile(r"\s+([!?,.;])(?=\s|$)")
_EDGES = " \t\r\n,;:.-/"


def phrase(pattern: str) -> re.Pattern[str]:
    """Compile a phrase: whole words, any case, any run of blanks where the pattern has a space."""
    return re.compile(r"(?<![\w])(?:" + pattern.replace(" ", r"[ \t\n]+") + r")(?![\w])", re.IGNORECASE)


class Phrases:
    """The text with what was consumed so far blanked."""

    def __init__(self, text: str) -> None:
        self.original = text[:CHARACTERS_MAX].replace(BLANK, " ")
        self.rest = self.original.translate(_PLAIN)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Consume the first match of the pattern."""
        match = pattern.search(self.rest)
        if match:
            self.blank(*match.span())
        return match

    def take_all(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        """Consume every match of the pattern, left to right."""
        while match := self.take(pattern):
            yield match

    def blank(self, start: int, end: int) -> None:
        """Consume a span."""
        self.rest = self.rest[:start] + BLANK * (end - start) + self.rest[end:]

    def between(self, start: int, end: int) -> str:
        """The unconsumed text of a span, stripped."""
        return self.rest[start:end].replace(BLANK, " ").strip()

    def title(self) -> str:
        """The text that no phrase consumed, without dangling connectors."""
        return clean_title(self.remainder())

    def remainder(self) -> str:
        """The original text with blanks for what was consumed."""
        return "".join(c if r != BLANK else " " for c, r in zip(self.original, self.rest, strict=True))


def clean_title(text: str) -> str:
    """Collapse blanks, and strip punctuation and dangling connectors from both ends."""
    title = _LOOSE_PUNCTUATION.sub(r"\1", _EMPTY_BRACKETS.sub(" ", " ".join(text.split())))
    title = " ".join(title.split()).strip(_EDGES)
    while True:
        shorter = _DANGLING_START.sub("", _DANGLING_END.sub("", title)).strip(_EDGES)
        if shorter == title:
            return title
        title = shorter
