"""Transforms: changes computed from the stored value inside the commit, so that no update is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from holdfast.errors import LimitReachedError


class Increment(msgspec.Struct, frozen=True):
    """Add to a number; a missing or null one counts as zero.

    With `at_most` the commit is refused where the sum would exceed it, so that concurrent callers can't
    exceed a limit together; `at_least` is the floor of the sum.
    """

    by: int | float = 1
    at_most: int | float | None = None
    at_least: int | float | None = None

    def apply(self, old: Any) -> Any:
        total = (old or 0) + self.by
        if self.at_most is not None and total > self.at_most:
            raise LimitReachedError(
                f"{old or 0} used, {self.by} requested, {self.at_most} allowed",
                usage=old or 0,
                limit=self.at_most,
            )
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
    """Append to a list the values that it does not contain yet."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)

    def apply(self, old: Any) -> Any:
        items = list(old or [])
        for value in self.values:
            if value not in items:
                items.append(value)
        return items


@dataclass(frozen=True, init=False)
class ArrayRemove:
    """Remove all occurrences of these values from a list."""

    values: tuple[Any, ...]

    def __init__(self, *values: Any) -> None:
        object.__setattr__(self, "values", values)

    def apply(self, old: Any) -> Any:
        return [value for value in old or [] if value not in self.values]


TRANSFORMS: Final = (Increment, Maximum, Minimum, ArrayUnion, ArrayRemove)
