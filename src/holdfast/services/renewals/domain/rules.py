"""The rules of a property: how its runs judge, and which residents they send to the RMS unasked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta

from holdfast.errors import InvalidError
from holdfast.services.renewals.domain.scoring import TOLERANCE_CENTS, Thresholds, Weights

TOLERANCE_CENTS_MAX: Final = 10**9
Sending = Literal["nothing", "high", "flagged"]
S = TypeVar("S", bound=msgspec.Struct)


class RulesRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A property's rules; what is left out takes the default."""

    weights: Weights = Weights()
    thresholds: Thresholds = Thresholds()
    tolerance_cents: Annotated[int, Meta(ge=0, le=TOLERANCE_CENTS_MAX)] = TOLERANCE_CENTS
    send: Sending = "nothing"


def merge_rules(rules: RulesRequest, changes: Mapping[str, Any]) -> RulesRequest:
    """Replace weights, thresholds and other fields by name; InvalidError for values that do not fit.

    Example: `merge_rules(RulesRequest(), {"high": 60, "send": "high"})`
    """
    nested = {"weights": _merge(rules.weights, changes), "thresholds": _merge(rules.thresholds, changes)}
    return _merge(rules, {**nested, **changes})


def _merge(stored: S, changes: Mapping[str, Any]) -> S:
    names = {one.name: one.encode_name for one in msgspec.structs.fields(type(stored))}
    values = {encoded: changes.get(name, getattr(stored, name)) for name, encoded in names.items()}
    try:
        return msgspec.convert(values, type(stored), from_attributes=True)
    except msgspec.ValidationError as fault:
        message, _, path = str(fault).partition(" - at `$.")
        raise InvalidError(message, path.rstrip("`") or None) from None
