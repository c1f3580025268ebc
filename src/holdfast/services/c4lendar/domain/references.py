"""References to events: `EVT-` and as many characters of the uid as make it unique in the chat."""

from __future__ import annotations

import re
from collections.abc import Iterable

PREFIX = "EVT-"
CHARACTERS_MIN = 8
_REFERENCE = re.compile(r"(?<![\w])EVT-(?P<uid>[0-9A-HJKMNP-TV-Z]{4,26})(?![\w])", re.IGNORECASE)


def reference_of(uid: str, others: Iterable[str]) -> str:
    """The shortest reference of at least eight characters that no other uid of the chat shares.

    Eight characters of a ULID carry about a second of time, so two events of one moment need more.
    """
    rivals = [other for other in others if other != uid]
    length = CHARACTERS_MIN
    while length < len(uid) and any(other.startswith(uid[:length]) for other in rivals):
        length += 1
    return PREFIX + uid[:length]


def find_reference(text: str) -> tuple[str, str]:
    """Return the characters of the first reference in a text, and the text without it."""
    match = _REFERENCE.search(text)
    if match is None:
        return "", text
    return match["uid"].upper(), (text[: match.start()] + " " + text[match.end() :]).strip()


def uids_of(reference: str, uids: Iterable[str]) -> list[str]:
    """The uids that begin with these characters."""
    return [uid for uid in uids if uid.startswith(reference.upper())]
