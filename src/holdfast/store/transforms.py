"""Changes that depend on what is stored: the engine makes them where the value is, so no write is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.errors import LimitReachedError


class Increment(msgspec.Struct, frozen=True):
    """Add to a number; a missing or null one counts as zero.

    With `at_most` the commit is refused where the sum would pass it, so that callers at the same moment
    can't exceed a limit together; `at_least` stops the sum from falling below.
    """

    by: int | float = 1
    at_most: int | float | None = None
    at_least: int | float | None = None

    def apply(self, old: Any) -> Any:
        total = (old or 0) + self.by
        if self.at_most is not None and total > self.at_most:
            raise LimitReachedError(f"{old or 0} used, {self.by} wanted, {self.at_most} allowed")
        return total if self.at_least is None else max(total, self.at_least)


class Maximum(msgspec.Struct, frozen=True):
    """Keep the larger of the stored and the given number."""

    of: int | float

    def apply(self, old: Any) -> Any:
        return self.of if old is None or old is msgspec.UNSET else max(old, self.of)


class Minimum(msgspec.Struct, frozen=True):
    """Keep the smaller of the stored and the given number."""

    of: int | float

    def apply(self, old: Any) -> Any:
        return self.of if old is None or old is msgspec.UNSET else min(old, self.of)


@dataclass(frozen=True, init=False)
class ArrayUnion:
    """Append to a list those values it does not hold yet."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)

    def apply(self, old: Any) -> Any:
        kept = list(old or [])
        for value in self.values:
            if value not in kept:
                kept.append(value)
        return kept


@dataclass(frozen=True, init=False)
class ArrayRemove:
    """Take all copies of these values out of a list."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)

    def apply(self, old: Any) -> Any:
        return [value for value in old or [] if value not in self.values]


TRANSFORMS: Final = (Increment, Maximum, Minimum, ArrayUnion, ArrayRemove)
