"""Words and domains that a reader does not want to see, as their browser keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from holdfast.services.hackernews.domain.selection import domain_of

COUNT_MAX: Final = 200
CHARACTERS_MAX: Final = 100


class Mutes(msgspec.Struct, frozen=True):
    """Muted words of titles, and muted domains with all below them."""

    words: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.words or self.domains)


def read_mutes(preferences: str) -> Mutes:
    """Return the mutes in a browser's preferences; none where they can't be read."""
    try:
        stored = msgspec.json.decode(preferences.encode(), type=Mutes)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Mutes()
    return Mutes(_cleaned(stored.words), _cleaned(stored.domains))


def write_mutes(words: Iterable[str], domains: Iterable[str]) -> str:
    """Return preferences with these mutes; empty for none. A domain may be given as a whole address.

    Example: `write_mutes(["crypto"], ["https://www.example.com/a"])`
    """
    mutes = Mutes(_cleaned(words), _cleaned(domain_of(one) or one.removeprefix("www.") for one in domains))
    return msgspec.json.encode(mutes).decode() if mutes else ""


def _cleaned(texts: Iterable[str]) -> tuple[str, ...]:
    words = (" ".join(text.casefold().split())[:CHARACTERS_MAX] for text in texts)
    return tuple(dict.fromkeys(word for word in words if word))[:COUNT_MAX]
