"""The platform's own tables, which this service reads: names and columns are theirs.

Added to them: `tenant_id`, the portfolio a row belongs to; a property's `time_zone`; and on `unit_pricing`
the `property_id` of its unit, so that a property's prices are one stretch of an index. Money is decimal under
the given names; beside it, under a name that says so, the same in cents, which are indexed and added up.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

from holdfast.kit import NO_TENANT
from holdfast.model import ADMINS_READ, MEMBERS_READ, CompositeId, Document, Index, ProvidedId, document
from holdfast.model.declaration import Upgrade
from holdfast.services.renewals.domain.money import Cents, amount_of, cents_of
from holdfast.services.renewals.domain.scoring import LeaseType

# An endpoint has its property's id, and the outbox joins ids with `~`.
PROPERTY_ID = ProvidedId(pattern=r"[^~/]{1,100}")


def _with_decimals(*names: str) -> Upgrade:
    """The upgrade of version 1, which stored cents under the given names."""

    def upgrade(fields: dict[str, Any]) -> dict[str, Any]:
        cents = {name: fields[name] for name in names if isinstance(fields.get(name), int)}
        return {**fields, **{name: str(amount_of(value)) for name, value in cents.items()}}

    return upgrade


@document("properties/{id}", id=PROPERTY_ID, tenant="tenant_id", indexes=[Index("name")], access=MEMBERS_READ,
          all_columns=True)  # fmt: skip
class Property(Document):
    """A building or a group of them; its dates are those of its time zone."""

    id: str
    tenant_id: str = NO_TENANT
    name: str
    address: str = ""
    city: str = ""
    state: str = ""
    zip_code: str = ""
    status: str = "active"
    time_zone: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None


@document("renewal_property_names/{name_key}", tenant="tenant_id", access=ADMINS_READ)
class PropertyName(Document):
    """Holds a property's name for it: made in the commit of the property, so a name is given once."""

    name_key: str
    tenant_id: str = NO_TENANT
    property_id: str


@document("unit_types/{id}", tenant="tenant_id", indexes=[Index("property_id", "name")], access=ADMINS_READ,
          all_columns=True)  # fmt: skip
class UnitType(Document):
    id: str
    tenant_id: str = NO_TENANT
    property_id: str
    name: str
    bedrooms: int = 0
    bathrooms: float = 0.0
    square_footage: int | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None


@document(
    "units/{id}", tenant="tenant_id", indexes=[Index("property_id", "unit_number")], access=MEMBERS_READ,
    all_columns=True,
)  # fmt: skip
class Unit(Document):
    id: str
    tenant_id: str = NO_TENANT
    property_id: str
    unit_type_id: str = ""
    unit_number: str
    floor: int | None = None
    status: Literal["available", "occupied", "pending_move_out"] = "available"
    created_at: datetime | None = None
    updated_at: datetime | None = None


@document(
    "unit_pricing/{price_key}",
    all_columns=True,
    upgrades={1: _with_decimals("base_rent", "market_rent")},
    id=CompositeId("unit_id", "effective_date"),
    tenant="tenant_id",
    indexes=[Index("property_id", "unit_id", "effective_date", "market_rent_cents")],
    access=ADMINS_READ,
)
class UnitPricing(Document):
    """A unit's price from a day on; its key is made of both, so a unit has one price a day."""

    price_key: str = ""
    id: str
    tenant_id: str = NO_TENANT
    property_id: str
    unit_id: str
    base_rent: Decimal
    market_rent: Decimal
    effective_date: date
    created_at: datetime | None = None
    base_rent_cents: Cents = 0
    market_rent_cents: Cents = 0
    schema_version: int = 2

    def __post_init__(self) -> None:
        self.base_rent_cents, self.market_rent_cents = cents_of(self.base_rent), cents_of(self.market_rent)


@document(
    "residents/{id}",
    all_columns=True,
    # A score's id is made of a time and this one, and must fit into what an id may take in bytes.
    id=ProvidedId(pattern=r"[ -.0-~]{1,200}|[^/]{1,110}"),
    tenant="tenant_id",
    indexes=[
        # All that a calculation reads of them.
        Index("property_id", "id", "unit_id", "first_name", "last_name", "status"),
        Index("property_id", "status"),
        Index("property_id", "last_name", "first_name"),
        Index("unit_id"),
    ],
    access=MEMBERS_READ,
)
class Resident(Document):
    id: str
    tenant_id: str = NO_TENANT
    property_id: str
    unit_id: str
    first_name: str
    last_name: str
    email: str = ""
    phone: str = ""
    status: Literal["active", "notice_given", "moved_out"] = "active"
    move_in_date: date | None = None
    move_out_date: date | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None

    @property
    def name(self) -> str:
        return f"{self.first_name} {self.last_name}".strip()


@document(
    "leases/{id}",
    all_columns=True,
    upgrades={1: _with_decimals("monthly_rent")},
    tenant="tenant_id",
    indexes=[
        Index(
            "property_id", "status", "resident_id", "lease_start_date", "lease_end_date", "lease_type",
            "monthly_rent_cents",
        ),
        Index("resident_id", "-lease_start_date"),
    ],
    access=MEMBERS_READ,
)  # fmt: skip
class LeaseRow(Document):
    """A lease as the platform keeps it; one that runs from month to month may have no end."""

    id: str
    tenant_id: str = NO_TENANT
    property_id: str
    resident_id: str
    unit_id: str = ""
    lease_start_date: date
    lease_end_date: date | None = None
    monthly_rent: Decimal
    lease_type: LeaseType = "fixed"
    status: Literal["active", "expired", "terminated"] = "active"
    created_at: datetime | None = None
    updated_at: datetime | None = None
    monthly_rent_cents: Cents = 0
    schema_version: int = 2

    def __post_init__(self) -> None:
        self.monthly_rent_cents = cents_of(self.monthly_rent)


@document(
    "resident_ledger/{id}",
    all_columns=True,
    upgrades={1: _with_decimals("amount")},
    tenant="tenant_id",
    indexes=[
        Index(
            "property_id",
            "resident_id",
            "transaction_type",
            "charge_code",
            "transaction_date",
            "amount_cents",
        )
    ],
    access=ADMINS_READ,
)
class LedgerRow(Document):
    """A charge or a payment."""

    id: str
    tenant_id: str = NO_TENANT
    property_id: str
    resident_id: str
    transaction_type: Literal["charge", "payment"]
    charge_code: str = ""
    amount: Decimal
    transaction_date: date
    created_at: datetime | None = None
    amount_cents: Cents = 0
    schema_version: int = 2

    def __post_init__(self) -> None:
        self.amount_cents = cents_of(self.amount)


@document(
    "renewal_offers/{id}",
    all_columns=True,
    upgrades={1: _with_decimals("proposed_rent")},
    tenant="tenant_id",
    indexes=[
        Index("property_id", "resident_id", "lease_id", "status", "offer_expiration_date", "created_at")
    ],
    access=ADMINS_READ,
)
class OfferRow(Document):
    """A renewal offer; `created_at` is when it was made."""

    id: str
    tenant_id: str = NO_TENANT
    property_id: str
    resident_id: str
    lease_id: str
    renewal_start_date: date | None = None
    renewal_end_date: date | None = None
    proposed_rent: Decimal | None = None
    offer_expiration_date: date | None = None
    status: Literal["pending", "accepted", "declined", "expired"] = "pending"
    created_at: datetime | None = None
    updated_at: datetime | None = None
    schema_version: int = 2

    def __post_init__(self) -> None:
        if self.proposed_rent is not None:
            cents_of(self.proposed_rent)


TABLES: dict[str, type[Document]] = {
    "properties": Property, "unit_types": UnitType, "units": Unit, "unit_pricing": UnitPricing,
    "residents": Resident, "leases": LeaseRow, "resident_ledger": LedgerRow, "renewal_offers": OfferRow,
}  # fmt: skip
