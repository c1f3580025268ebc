"""Operations on a store, without a server."""

from __future__ import annotations

from functools import partial

from holdfast.kit.audit import Audit
from holdfast.model.access import SERVICE
from holdfast.operation import Operator
from holdfast.services.renewals.operations import Renewals
from holdfast.store import Store


def operator_of(store: Store, *, actor: str = "test") -> Operator:
    return Operator(tenant_id="-", actor=actor, caller=SERVICE, audits=partial(Audit, store))


def renewals_on(store: Store) -> Renewals:
    return Renewals(store)
