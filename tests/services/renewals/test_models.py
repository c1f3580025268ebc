"""Every table, column, constraint, index and question of the data model is declared, and is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError, AppendOnlyError, IllegalMoveError, WrongTypeError
from holdfast.model import Document, schema_of
from holdfast.services.renewals.domain.scoring import Signal, Thresholds, tier_of
from holdfast.services.renewals.models import (
    DOCUMENTS,
    TABLES,
    CalculationJob,
    DeadLetterRow,
    DeliveryState,
    Property,
    RiskScore,
    UnitPricing,
)
from holdfast.store import Store, create, patch
from tests.services.renewals.server import AS_OF

# The tables of the platform, as they are given.
GIVEN = {
    "properties": "id name address city state zip_code status created_at updated_at",
    "unit_types": "id property_id name bedrooms bathrooms square_footage created_at updated_at",
    "units": "id property_id unit_type_id unit_number floor status created_at updated_at",
    "unit_pricing": "id unit_id base_rent market_rent effective_date created_at",
    "residents": "id property_id unit_id first_name last_name email phone status move_in_date move_out_date"
    " created_at updated_at",
    "leases": "id property_id resident_id unit_id lease_start_date lease_end_date monthly_rent lease_type"
    " status created_at updated_at",
    "resident_ledger": "id property_id resident_id transaction_type charge_code amount transaction_date"
    " created_at",
    "renewal_offers": "id property_id resident_id lease_id renewal_start_date renewal_end_date proposed_rent"
    " offer_expiration_date status created_at updated_at",
}
# The tables that were added to them: columns, then for each index the fields it must begin with.
ADDED: dict[str, tuple[type[Document], str, list[str]]] = {
    "renewal_risk_scores": (
        RiskScore,
        "property_id resident_id lease_id risk_score risk_tier days_to_expiry signals calculated_at",
        ["property_id", "resident_id", "property_id calculated_at", "property_id calculated_at risk_tier"],
    ),
    "webhook_delivery_state": (
        DeliveryState,
        "property_id resident_id event_id event_type payload status attempt_count last_attempt_at"
        " next_retry_at rms_response created_at",
        ["event_id", "status", "status next_retry_at", "property_id"],
    ),
    "webhook_dead_letter_queue": (DeadLetterRow, "webhook_delivery_state_id reason created_at", ["resolved"]),
}
STATES = {"pending", "sending", "delivered", "failed", "dlq"}


def stored_names(cls: type[Document]) -> set[str]:
    return set(cls.__struct_encode_fields__)


@pytest.mark.parametrize("table", GIVEN)
def test_every_given_column_is_kept_under_its_name(table: str) -> None:
    cls = TABLES[table]
    assert schema_of(cls).path.names == (table,)
    assert set(GIVEN[table].split()) <= stored_names(cls)


def test_no_given_table_is_left_out() -> None:
    assert set(TABLES) == set(GIVEN)


@pytest.mark.parametrize("table", ADDED)
def test_every_added_column_and_index_is_declared(table: str) -> None:
    cls, columns, indexes = ADDED[table]
    schema = schema_of(cls)
    assert schema.path.names == (table,)
    assert set(columns.split()) <= stored_names(cls)
    declared = [" ".join(field.column.stored for field in index.fields) for index in schema.indexes]
    for wanted in indexes:
        assert any((one + " ").startswith(wanted + " ") for one in declared), (table, wanted, declared)


def test_a_delivery_moves_as_the_status_machine_says() -> None:
    life = schema_of(DeliveryState).lifecycle
    assert life is not None
    assert set(life.moves) >= STATES
    assert set(life.moves["sending"]) == {"pending", "delivered", "failed", "dlq"}
    assert "delivered" not in life.moves["pending"]


@pytest.fixture(params=["sqlite", "postgres", "firestore"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    opened = await open_store(request.getfixturevalue(f"{request.param}_url"), DOCUMENTS)
    await opened.migrate()
    yield opened.tenant("-")
    await opened.close()


NOW = datetime(2026, 3, 1, 9, tzinfo=UTC)


def score(resident: str, points: int, *, at: datetime = NOW, property_id: str = "p-1") -> RiskScore:
    return RiskScore(
        property_id=property_id, resident_id=resident, lease_id=f"lease-{resident}", unit_id="u",
        name=resident, notice_given=False, as_of_date=AS_OF, risk_score=points, days_to_expiry=points,
        risk_tier=tier_of(points, Thresholds()), calculated_at=at,
        signals={"daysToExpiryDays": Signal(5, points, "So.")},
    )  # fmt: skip


def delivery(number: int, *, status: str = "pending", property_id: str = "p-1") -> DeliveryState:
    event = f"evt-{property_id}-r{number}-t"
    return DeliveryState(
        id=f"{event}~{property_id}", endpoint_id=property_id, resident_id=f"r{number}", event_id=event,
        event_type="renewal.risk_flagged", body=b"{}", occurred_at=NOW, status=status,  # type: ignore[arg-type]
        created_at=NOW + timedelta(seconds=number), next_attempt_at=NOW + timedelta(seconds=number),
    )  # fmt: skip


async def test_a_resident_has_one_score_for_each_run_and_it_never_changes(store: Store) -> None:
    await store.commit(create(score("r1", 80)))
    with pytest.raises(AlreadyExistsError):
        await store.commit(create(score("r1", 10)))
    await store.commit(create(score("r1", 20, at=NOW + timedelta(microseconds=1))))
    id = f"{msgspec.to_builtins(NOW)}_r1"
    with pytest.raises(AppendOnlyError):
        await store.commit(patch(RiskScore, id, changes={"risk_tier": "low"}))


async def test_an_event_exists_once_and_its_state_moves_only_as_allowed(store: Store) -> None:
    first = delivery(1)
    await store.commit(create(first))
    with pytest.raises(AlreadyExistsError):
        await store.commit(create(delivery(1)))
    with pytest.raises(IllegalMoveError):
        await store.commit(patch(DeliveryState, first.id, changes={"status": "delivered"}))


async def test_a_unit_has_one_price_a_day(store: Store) -> None:
    def price(id: str) -> UnitPricing:
        return UnitPricing(
            id=id, property_id="p", unit_id="u", base_rent=1, market_rent=2, effective_date=AS_OF
        )

    await store.commit(create(price("a")))
    with pytest.raises(AlreadyExistsError):
        await store.commit(create(price("b")))


@pytest.mark.parametrize(
    "wrong", [{"risk_score": 101}, {"risk_score": -1}, {"risk_tier": "huge"}], ids=["over", "under", "tier"]
)
async def test_a_score_outside_its_range_is_refused(sqlite_url: str, wrong: dict[str, object]) -> None:
    made = score("r1", 50)
    for name, value in wrong.items():
        setattr(made, name, value)
    with pytest.raises(WrongTypeError):
        create(made)


def test_money_is_never_a_float() -> None:
    for cls in TABLES.values():
        for field in cls.__struct_fields__:
            if field.endswith(("rent", "amount")):
                assert "int" in str(cls.__annotations__[field]) or "Cents" in str(cls.__annotations__[field])


def test_every_document_of_the_service_is_kept() -> None:
    assert {Property, CalculationJob, RiskScore, DeliveryState, DeadLetterRow} <= set(DOCUMENTS)
