"""A text that logs, error messages and JSON can't reveal."""

from __future__ import annotations

import hmac
from typing import Any, Final, NoReturn

MASK: Final = "***"


class Secret:
    """Holds a secret so that logs, error texts, tracebacks and JSON can't show it; `reveal()` does.

    Example: `f"token={Secret('hunter2')}"` gives `"token=***"`
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The secret itself: call it where it is used, and store the result nowhere."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __rich_repr__(self) -> Any:
        yield MASK

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled; seal it")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self
