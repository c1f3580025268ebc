"""Token scopes: `runs:read`, `runs:write`, `channels:*`, `*:read`, `*`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from holdfast.errors import InvalidError

EVERYTHING: Final = "*"
_WRITES: Final = ("create", "update", "delete")
_SCOPE: Final = re.compile(r"\*|(\*|[A-Za-z0-9_.-]{1,100}):(\*|[a-z_-]{1,40})")


def check_scopes(scopes: Iterable[str]) -> list[str]:
    """The scopes, deduplicated in order; raises for a malformed one."""
    unique = list(dict.fromkeys(scopes))
    for scope in unique:
        if not _SCOPE.fullmatch(scope):
            raise InvalidError(
                f"{scope!r} is not a scope: write area:action, area:*, *:action or *", "scopes"
            )
    if not unique:
        raise InvalidError("a token needs at least one scope", "scopes")
    return unique


def covers(scopes: Iterable[str], area: str, action: str) -> bool:
    """Whether any of the scopes covers this action in this area.

    Example: `covers(["runs:read"], "runs", "read")` gives True
    """
    words = {action, "*"} | ({"write"} if action in _WRITES else set())
    covering = {f"{part}:{word}" for part in (area, "*") for word in words}
    return not (covering | {EVERYTHING}).isdisjoint(scopes)
