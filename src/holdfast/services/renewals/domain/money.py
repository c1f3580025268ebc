"""Amounts of money: whole cents inside, exact decimal text at every edge, never a float."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Final

from msgspec import Meta

from holdfast.errors import WrongTypeError

CENTS_MAX: Final = 10**14
_AMOUNT: Final = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{1,2})0*)?")

Cents = Annotated[int, Meta(ge=-CENTS_MAX, le=CENTS_MAX, description="Money, in cents.")]


def to_cents(text: str, field: str = "amount") -> int:
    """Decimal text as cents, exactly; refuses fractions of a cent.

    Example: `to_cents("1400.5")` gives `140050`
    """
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise WrongTypeError(f"{text!r} is no amount such as 1400.50", field)
    sign, whole, fraction = found.groups()
    cents = int(whole) * 100 + int((fraction or "").ljust(2, "0"))
    return -cents if sign else cents


def amount_of(cents: int) -> Decimal:
    """Cents as a decimal with two places: `amount_of(140050)` gives `Decimal("1400.50")`."""
    return Decimal(cents).scaleb(-2)


def cents_of(amount: Decimal) -> int:
    """A decimal as cents, exactly; ValueError for fractions of a cent and what is out of range."""
    cents = amount.scaleb(2) if amount.is_finite() else amount
    if not cents.is_finite() or cents != cents.to_integral_value() or abs(cents) > CENTS_MAX:
        raise ValueError(f"{amount} is no amount such as 1400.50")
    return int(cents)


# The same rents are told again and again.
@lru_cache(maxsize=4_096)
def from_cents(cents: int) -> str:
    """Cents as decimal text: `from_cents(140050)` gives `1400.50`."""
    sign, cents = ("-", -cents) if cents < 0 else ("", cents)
    return f"{sign}{cents // 100}.{cents % 100:02}"
