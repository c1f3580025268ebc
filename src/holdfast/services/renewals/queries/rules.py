"""The rules of each property: how its next runs judge, and what they send out by themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from holdfast.errors import InvalidError
from holdfast.services.renewals.domain.scoring import TOLERANCE_CENTS, Thresholds, Weights
from holdfast.services.renewals.models import Property, PropertyRules
from holdfast.services.renewals.models.scores import Sending
from holdfast.services.renewals.queries.lookup import get_or_404
from holdfast.store import Store, Transaction, put

TOLERANCE_CENTS_MAX: Final = 10**9
S = TypeVar("S", bound=msgspec.Struct)


class RulesRequest(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How a property's next run judges, and what it sends out by itself; what is left out is everybody's."""

    weights: Weights = Weights()
    thresholds: Thresholds = Thresholds()
    tolerance_cents: Annotated[int, Meta(ge=0, le=TOLERANCE_CENTS_MAX)] = TOLERANCE_CENTS
    send: Sending = "nothing"


class RuleBook:
    """The rules of one portfolio's properties.

    Example: `rules = await RuleBook(store.tenant("-")).get("property-7")`
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, property_id: str) -> PropertyRules:
        """The property's own rules, or those of everybody."""
        there = await self._store.get(PropertyRules, property_id)
        return self._of(property_id, RulesRequest()) if there is None else there.doc

    async def set(self, property_id: str, order: RulesRequest, *, tx: Transaction) -> PropertyRules:
        """Give a property these rules, for the runs to come; scores and tiers that are kept stay."""
        await get_or_404(self._store, Property, property_id, what="property")
        made = self._of(property_id, order)
        tx.write(put(made))
        return made

    async def change(self, property_id: str, given: Mapping[str, Any], *, tx: Transaction) -> PropertyRules:
        """The same for some of them, by their names; the others stay as the property has them."""
        there = await tx.get(PropertyRules, property_id)
        return await self.set(
            property_id, changed(RulesRequest() if there is None else order_of(there.doc), given), tx=tx
        )

    def _of(self, property_id: str, order: RulesRequest) -> PropertyRules:
        return PropertyRules(
            property_id=property_id, tenant_id=self._store.tenant_id or "-", weights=order.weights,
            thresholds=order.thresholds, tolerance_cents=order.tolerance_cents, send=order.send,
            updated_at=self._store.clock.now(),
        )  # fmt: skip


def order_of(rules: PropertyRules) -> RulesRequest:
    """The order that would give a property these rules."""
    return RulesRequest(
        weights=rules.weights, thresholds=rules.thresholds, tolerance_cents=rules.tolerance_cents,
        send=rules.send,
    )  # fmt: skip


def changed(order: RulesRequest, given: Mapping[str, Any]) -> RulesRequest:
    """The order with these weights, thresholds and others in place; `InvalidError` for what does not fit.

    Example: `changed(RulesOrder(), {"high": 60, "send": "high"})`
    """
    return _with(
        order,
        {
            "weights": _with(order.weights, given),
            "thresholds": _with(order.thresholds, given),
            **given,
        },
    )


def _with(kept: S, given: Mapping[str, Any]) -> S:
    names = {one.name: one.encode_name for one in msgspec.structs.fields(type(kept))}
    values = {spelt: given.get(name, getattr(kept, name)) for name, spelt in names.items()}
    try:
        return msgspec.convert(values, type(kept), from_attributes=True)
    except msgspec.ValidationError as fault:
        said, _, path = str(fault).partition(" - at `$.")
        raise InvalidError(said, path.rstrip("`") or None) from None
