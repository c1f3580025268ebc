"""One row of a given table as the document it stands for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec

from holdfast.errors import InvalidError
from holdfast.model import Document
from holdfast.services.renewals.domain.dates import zone_named
from holdfast.services.renewals.domain.money import amount_of, to_cents
from holdfast.services.renewals.models import TABLES, LeaseRow, Property, UnitPricing

_MONEY: Final = frozenset({"base_rent", "market_rent", "monthly_rent", "amount", "proposed_rent"})
_MISSING: Final = re.compile(r"missing required field `(\w+)`")
_SHOWN: Final = 60
_TIMES: Final = frozenset({"created_at", "updated_at"})
_OURS: Final = frozenset({"tenant_id", "price_key", "schema_version", *(f"{name}_cents" for name in _MONEY)})
# Where cells that no column names are shown to whoever mends the row.
BEYOND: Final = "beyond_header"
# A price's property is that of its unit, which is known when the row is taken in.
_DERIVED: Final = {"unit_pricing": frozenset({"property_id"})}


@cache
def columns_of(table: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The columns that a given table may have, and those that it must have."""
    fields = [field for field in msgspec.structs.fields(TABLES[table]) if field.name not in _OURS]
    derived = _DERIVED.get(table, frozenset())
    needed = tuple(field.name for field in fields if field.required and field.name not in derived)
    return frozenset(field.name for field in fields), needed


def key_of(document: Document) -> str:
    """The id under which a row is kept."""
    if isinstance(document, UnitPricing):
        return f"{document.unit_id}_{document.effective_date.isoformat()}"
    return str(document.id)  # type: ignore[attr-defined]


def key_in(table: str, values: Mapping[str, str]) -> str:
    """The same of a row as it was read, also where it fits no document."""
    if table == "unit_pricing":
        return f"{values['unit_id']}_{values['effective_date']}"
    return values["id"]


def read_row(table: str, values: Mapping[str, str], tenant_id: str) -> Document:
    """A row's document; `InvalidError` names the field that does not fit."""
    if BEYOND in values:
        said = f"{values[BEYOND][:_SHOWN]!r} is more than the header has columns: is a comma not in quotes?"
        raise InvalidError(said, BEYOND)
    fields: dict[str, Any] = {"tenant_id": tenant_id}
    for name, text in values.items():
        if text:
            fields[name] = _value(name, text)
    if table in _DERIVED:
        fields.setdefault("property_id", "unknown yet")
    try:
        document = msgspec.convert(fields, TABLES[table], strict=False)
    except msgspec.ValidationError as fault:
        raise _explained(str(fault), values) from None
    if isinstance(document, Property):
        zone_named(document.time_zone)
    if isinstance(document, LeaseRow):
        _check_lease(document)
    return document


def _explained(fault: str, values: Mapping[str, str]) -> InvalidError:
    """What the decoder found, told of the row's own text."""
    message, _, path = fault.partition(" - at `$.")
    if missing := _MISSING.search(message):
        return InvalidError("must not be empty", missing[1])
    field = path.rstrip("`")
    return InvalidError(f"{values.get(field, '')[:_SHOWN]!r} does not fit: {message}", field or None)


def _check_lease(lease: LeaseRow) -> None:
    if lease.lease_type == "fixed" and lease.lease_end_date is None:
        raise InvalidError("a fixed lease needs an end", "lease_end_date")
    if lease.lease_end_date is not None and lease.lease_end_date < lease.lease_start_date:
        raise InvalidError("the lease ends before it begins", "lease_end_date")


def _value(name: str, text: str) -> Any:
    if name in _MONEY:
        return amount_of(to_cents(text, name))
    if name not in _TIMES:
        return text
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise InvalidError(f"{text!r} is no time such as 2026-03-01T09:30:00Z", name) from None
