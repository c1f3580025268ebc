"""Every table, column, constraint, index and question of the data model is declared, and is answered."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import asyncpg
import msgspec
import pytest

from holdfast.app import open_store
from holdfast.errors import AlreadyExistsError, AppendOnlyError, IllegalMoveError, WrongTypeError
from holdfast.model import CompositeId, Document, schema_of
from holdfast.services.renewals.domain.money import amount_of
from holdfast.services.renewals.domain.scoring import Signal, Thresholds, tier_of
from holdfast.services.renewals.models import (
    DOCUMENTS,
    TABLES,
    CalculationJob,
    DeadLetterRow,
    DeliveryState,
    OfferRow,
    Property,
    RiskScore,
    UnitPricing,
    UnitType,
)
from holdfast.store import Fence, Store, create, patch
from tests.services.renewals.data_model import ADDED_COLUMNS, ADDED_INDEXES, GIVEN_COLUMNS, STATES, UNIQUE
from tests.services.renewals.server import AS_OF, Person

TABLE_OF: dict[str, type[Document]] = {
    **TABLES, "renewal_risk_scores": RiskScore, "webhook_delivery_state": DeliveryState,
    "webhook_dead_letter_queue": DeadLetterRow,
}  # fmt: skip
COLUMNS = {**GIVEN_COLUMNS, **ADDED_COLUMNS}


def test_the_text_of_the_data_model_was_read() -> None:
    assert set(TABLE_OF) == set(COLUMNS)
    assert [len(names) for names in COLUMNS.values()] == [7, 6, 6, 5, 10, 9, 7, 9, 8, 10, 3]
    assert STATES == ["pending", "delivered", "failed", "dlq"]


@pytest.mark.parametrize("table", TABLE_OF)
def test_names_of_a_table_are_in_one_style(table: str) -> None:
    assert schema_of(TABLE_OF[table]).path.names == (table,)
    assert [name for name in TABLE_OF[table].__struct_encode_fields__ if name != name.lower()] == []


@pytest.mark.parametrize("table", ADDED_INDEXES)
def test_every_index_of_the_data_model_is_declared(table: str) -> None:
    declared = [[field.column.stored for field in one.fields] for one in schema_of(TABLE_OF[table]).indexes]
    # A property is asked for before a tier, a time or a retry: each of them is in an index that the
    # questions of the data model are answered by.
    for wanted in ADDED_INDEXES[table]:
        assert any(wanted in fields for fields in declared), (table, wanted, declared)
    first = {fields[0] for fields in declared}
    assert {"property_id", "resident_id"} & set(ADDED_INDEXES[table]) <= first


def test_a_score_is_unique_as_the_data_model_says() -> None:
    identity = schema_of(RiskScore).declared.id
    assert isinstance(identity, CompositeId)
    assert [set(identity.fields)] == [set(pair) for pair in UNIQUE]


async def rows_of(url: str, text: str) -> list[dict[str, Any]]:
    """What somebody sees who asks the database itself."""
    if url.startswith("sqlite"):
        link = apsw.Connection(url.removeprefix("sqlite://"), flags=apsw.SQLITE_OPEN_READONLY)
        cursor = link.execute(text)
        names = [column[0] for column in cursor.get_description()]
        rows = [dict(zip(names, row, strict=True)) for row in cursor]
        link.close()
        return rows
    connection = await asyncpg.connect(url)
    rows = [dict(row) for row in await connection.fetch(text)]
    await connection.close()
    return rows


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_sql_shows_every_column_of_the_data_model(request: pytest.FixtureRequest, engine: str) -> None:
    url = request.getfixturevalue(f"{engine}_url")
    opened = await open_store(url, DOCUMENTS)
    await opened.migrate()
    home, event = opened.tenant("-"), delivery(1, status="sending")
    letter = DeadLetterRow(
        id=event.id,
        endpoint_id="p-1",
        event_id=event.event_id,
        event_type="t",
        reason="HTTP 400",
        died_at=NOW,
    )
    people = Person("Jane", 45, 1_400).documents("p-1", AS_OF)
    offer = OfferRow(
        id="o", property_id="p-1", resident_id="jane", lease_id="l", proposed_rent=amount_of(150_050)
    )
    house = Property(id="p-1", name="Harbour", address="1 Pier", city="Port", zip_code="01234")
    kind = UnitType(id="t", property_id="p-1", name="2 rooms", bedrooms=2, bathrooms=1.5)
    await home.commit(
        *(create(one) for one in (house, kind, *people, offer, score("jane", 80), event, letter))
    )
    event.status, event.attempt_count, event.finished_at, event.next_attempt_at = "dlq", 5, NOW, None
    event.rms_response = "400: no"
    changes = {
        name: getattr(event, name) for name in ("status", "attempt_count", "finished_at", "rms_response")
    }
    await home.commit(patch(DeliveryState, event.id, changes=changes, expect=Fence(0)))
    for table, columns in COLUMNS.items():
        found = await rows_of(url, f"SELECT * FROM {table}")
        assert found, table
        assert set(columns) <= set(found[0]), (table, found[0].keys())
    (shown,) = await rows_of(url, "SELECT id, name, address, city, zip_code, status FROM properties")
    assert shown == {"id": "p-1", "name": "Harbour", "address": "1 Pier", "city": "Port", "zip_code": "01234",
                     "status": "active"}  # fmt: skip
    (rent,) = await rows_of(url, "SELECT monthly_rent, monthly_rent_cents FROM leases")
    assert (str(rent["monthly_rent"]), rent["monthly_rent_cents"]) == ("1400.00", 140_000)
    (price,) = await rows_of(url, "SELECT proposed_rent FROM renewal_offers")
    assert str(price["proposed_rent"]) == "1500.50"
    seen = "status, attempt_count, rms_response, payload ->> 'eventId' AS event"
    asked = f"SELECT {seen} FROM webhook_delivery_state"
    assert await rows_of(url, asked) == [
        {"status": "dlq", "attempt_count": 5, "rms_response": "400: no", "event": event.event_id}
    ]
    stored = await home.get(DeliveryState, event.id)
    assert stored is not None
    assert stored.doc.body == event.body
    await opened.close()


def test_a_delivery_moves_as_the_status_machine_says() -> None:
    life = schema_of(DeliveryState).lifecycle
    assert life is not None
    assert set(life.moves) >= {*STATES, "sending"}
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
        event_type="renewal.risk_flagged", body=msgspec.json.encode({"eventId": event}), occurred_at=NOW,
        status=status,  # type: ignore[arg-type]
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
            id=id,
            property_id="p",
            unit_id="u",
            base_rent=amount_of(1),
            market_rent=amount_of(2),
            effective_date=AS_OF,
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


def test_money_is_decimal_under_the_given_names_and_cents_only_where_the_name_says_so() -> None:
    for table, columns in GIVEN_COLUMNS.items():
        fields = {field.name: str(field.type) for field in msgspec.structs.fields(TABLES[table])}
        for name in columns:
            if name.endswith(("rent", "amount")):
                assert "Decimal" in fields[name], (table, name)
        assert all(name.endswith("_cents") for name, kind in fields.items() if "Money, in cents" in kind)


def test_every_document_of_the_service_is_kept() -> None:
    assert {Property, CalculationJob, RiskScore, DeliveryState, DeadLetterRow} <= set(DOCUMENTS)
