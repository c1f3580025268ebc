"""Scopes: what a token is good for, at most. `runs:read`, `runs:write`, `channels:*`, `*:read`, `*`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from holdfast.errors import InvalidError

EVERYTHING: Final = "*"
_WRITES: Final = ("create", "update", "delete")
_SCOPE: Final = re.compile(r"\*|(\*|[A-Za-z0-9_.-]{1,100}):(\*|[a-z_-]{1,40})")


def check_scopes(scopes: Iterable[str]) -> list[str]:
    """The scopes once each, in order; raises for one that is written wrongly."""
    kept = list(dict.fromkeys(scopes))
    for scope in kept:
        if not _SCOPE.fullmatch(scope):
            raise InvalidError(f"{scope!r} is no scope: write area:action, area:*, *:action or *", "scopes")
    if not kept:
        raise InvalidError("a token without scopes is good for nothing; give at least one", "scopes")
    return kept


def covers(scopes: Iterable[str], area: str, action: str) -> bool:
    """Whether any of the scopes is good for this action in this area.

    Example: `covers(["runs:read"], "runs", "read")` gives True
    """
    words = {action, "*"} | ({"write"} if action in _WRITES else set())
    good = {f"{place}:{word}" for place in (area, "*") for word in words}
    return not (good | {EVERYTHING}).isdisjoint(scopes)
