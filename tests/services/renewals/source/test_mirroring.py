"""An existing PostgreSQL schema as the source: mirrored exactly, only ever read."""

from __future__ import annotations

import os
from datetime import UTC, date, datetime
from time import perf_counter, process_time
from typing import Any

import pytest

from holdfast.errors import RetryLaterError
from holdfast.services.renewals.domain.names import name_key
from holdfast.services.renewals.ingest.deletion import remove_gone
from holdfast.services.renewals.ingest.importer import Import, to_compare
from holdfast.services.renewals.ingest.sources import CsvTable, open_source
from holdfast.services.renewals.ingest.sources.database import Database
from holdfast.services.renewals.models import (
    TABLES,
    LeaseRow,
    LedgerRow,
    OfferRow,
    Property,
    PropertyName,
    Resident,
    SourceState,
    TableState,
    Unit,
    UnitPricing,
    UnitType,
)
from holdfast.store import Store, create, delete
from holdfast.store.io_counters import IO_COUNTERS
from tests.services.renewals.platform_schema import Platform, everything, id_of
from tests.services.renewals.source.mirror import (
    NOTHING,
    both,
    contents,
    doc,
    engines,
    sqlite,
    sums,
    take,
)

MANY = int(os.environ.get("HOLDFAST_RENEWALS_SOURCE_RESIDENTS", "500"))


@both
async def test_every_type_is_taken_as_it_is(store: Store, source: Platform) -> None:
    reports = await take(store, source)
    assert {table: (one.rows, one.created, one.bad) for table, one in reports.items()} == {
        "properties": (2, 2, []), "unit_types": (2, 2, []), "units": (60, 60, []),
        "unit_pricing": (60, 60, []), "residents": (60, 60, []), "leases": (60, 60, []),
        "resident_ledger": (360, 360, []), "renewal_offers": (24, 24, []),
    }  # fmt: skip
    house = await doc(store, Property, id_of("property", 1))
    assert (house.name, house.city, house.time_zone) == ('House, "1"', "Łódź\n№ 1", "")
    assert (house.state, house.zip_code) == ("IL", "62701")
    assert house.created_at == datetime(2026, 1, 2, 1, 4, 5, 500_000, tzinfo=UTC)
    assert (await doc(store, UnitType, id_of("type", 1))).bathrooms == 1.5
    assert (await doc(store, Unit, id_of("unit", 7))).status == "occupied"
    price = await doc(store, UnitPricing, f"{id_of('unit', 7)}_2026-01-01")
    assert (price.market_rent_cents, price.property_id) == (160_010, id_of("property", 2))
    resident = await doc(store, Resident, id_of("resident", 7))
    assert (resident.move_in_date, resident.move_out_date, resident.phone) == (date(2024, 2, 29), None, "")
    assert (await doc(store, LeaseRow, id_of("lease", 7))).monthly_rent_cents == 140_010
    assert (await doc(store, LedgerRow, "7")).amount_cents == 140_010
    assert (await doc(store, OfferRow, id_of("offer", 5))).created_at == datetime(2026, 2, 1, 10, tzinfo=UTC)


@both
async def test_an_unchanged_source_writes_nothing_at_either_end(store: Store, source: Platform) -> None:
    there = await source.contents()
    await take(store, source)
    assert await source.contents() == there
    here, first = await everything(store), await doc(store, SourceState, "-")
    again = await take(store, source)
    assert sums(again) == NOTHING
    assert not any(one.same for one in again.values())
    passed_over = await take(store, source, trust_digests=True)
    assert sums(passed_over) == NOTHING
    assert all(one.same for one in passed_over.values())
    assert (await everything(store), await source.contents()) == (here, there)
    assert (await doc(store, SourceState, "-")).read_at > first.read_at


@both
async def test_a_refresh_that_finds_nothing_new_reads_and_writes_next_to_nothing(
    request: pytest.FixtureRequest, store: Store, source: Platform
) -> None:
    """`HOLDFAST_RENEWALS_SOURCE_RESIDENTS=10000 pytest -k next_to_nothing` gives the figures of the page."""
    await source.owner.execute("TRUNCATE rop.properties, rop.resident_ledger, rop.renewal_offers CASCADE")
    await source.owner.execute("TRUNCATE rop.residents, rop.leases")
    await source.fill(MANY)
    await take(store, source)
    reads, writes, began, worked = IO_COUNTERS.reads, IO_COUNTERS.writes, perf_counter(), process_time()
    assert all(one.same for one in (await take(store, source, trust_digests=True)).values())
    took_s, work_s = perf_counter() - began, process_time() - worked
    # The lease taken, guarded and released, the state read and written, whether there are properties.
    assert max(IO_COUNTERS.reads - reads, IO_COUNTERS.writes - writes) <= 6
    engine = store.capabilities.name
    said = f"{MANY} residents unchanged, mirrored on {engine}: {took_s:.2f} s, {work_s:.2f} s of it at work"
    request.node.user_properties.append(("said", said))


@sqlite
async def test_the_link_refuses_to_write_even_as_the_owner(store_url: str, source: Platform) -> None:
    for statement in ("DELETE FROM rop.leases", "CREATE TABLE rop.ours (id int)", "TRUNCATE rop.leases"):
        with pytest.raises(RetryLaterError, match="read-only transaction"):
            async with Database(f"{source.owner_url}?schema=rop")._snapshot() as opened:
                await opened.execute(statement)


@engines
async def test_what_changes_at_the_source_changes_here(whole: Store, store: Store, source: Platform) -> None:
    await take(store, source)
    other = whole.tenant("other")
    await other.commit(create(Unit(id="theirs", tenant_id="other", property_id="p", unit_number="1")))
    await source.owner.execute(
        """
        UPDATE rop.leases SET monthly_rent = 1999.99 WHERE id = rop.id_of('lease', 3);
        UPDATE rop.unit_pricing SET effective_date = '2026-02-01' WHERE id = rop.id_of('price', 4);
        DELETE FROM rop.resident_ledger WHERE resident_id = rop.id_of('resident', 5);
        DELETE FROM rop.leases WHERE resident_id = rop.id_of('resident', 5);
        DELETE FROM rop.renewal_offers WHERE resident_id = rop.id_of('resident', 5);
        DELETE FROM rop.residents WHERE id = rop.id_of('resident', 5);
        INSERT INTO rop.residents (id, property_id, unit_id, first_name, last_name, status) VALUES
            (rop.id_of('resident', 99), rop.id_of('property', 1), rop.id_of('unit', 5), 'A', 'New', 'active');
        """
    )
    reports = await take(store, source, trust_digests=True)
    changed = {t: (one.created, one.updated, one.removed) for t, one in reports.items() if not one.same}
    assert changed == {
        "unit_pricing": (1, 0, 1), "residents": (1, 0, 1), "leases": (0, 1, 1), "resident_ledger": (0, 0, 6),
        "renewal_offers": (0, 0, 1),
    }  # fmt: skip
    assert (await doc(store, LeaseRow, id_of("lease", 3))).monthly_rent_cents == 199_999
    assert await store.get(Resident, id_of("resident", 5)) is None
    assert await store.get(UnitPricing, f"{id_of('unit', 4)}_2026-01-01") is None
    assert await other.get(Unit, "theirs") is not None
    assert sums(await take(store, source)) == NOTHING


@sqlite
async def test_a_property_that_is_replaced_gives_its_name_free(store: Store, source: Platform) -> None:
    await source.owner.execute(
        "INSERT INTO rop.properties (id, name) VALUES (rop.id_of('property', 8), 'Mill House')"
    )
    await take(store, source)
    await source.owner.execute(
        "UPDATE rop.properties SET id = rop.id_of('property', 9) WHERE id = rop.id_of('property', 8)"
    )
    report = (await take(store, source))["properties"]
    assert (report.created, report.removed, report.bad) == (1, 1, [])
    held = await doc(store, PropertyName, name_key("Mill House", "-"))
    assert held.property_id == id_of("property", 9)


@sqlite
async def test_a_price_follows_its_unit_to_another_property(store: Store, source: Platform) -> None:
    await take(store, source)
    key = f"{id_of('unit', 7)}_2026-01-01"
    assert (await doc(store, UnitPricing, key)).property_id == id_of("property", 2)
    await source.owner.execute(
        "UPDATE rop.units SET property_id = rop.id_of('property', 1) WHERE id = rop.id_of('unit', 7)"
    )
    assert sums(await take(store, source, trust_digests=True)) == NOTHING | {"updated": 2}
    assert (await doc(store, UnitPricing, key)).property_id == id_of("property", 1)


@sqlite
async def test_what_is_gone_is_found_also_where_ids_are_held_in_parts(store: Store, source: Platform) -> None:
    await take(store, source)
    await source.owner.execute("DELETE FROM rop.resident_ledger WHERE id % 3 = 0")
    database = open_source(source.url)
    made = Import(store, database)
    async with made._leases.hold("a test", owner="me") as lease, database.read() as sheets:
        removed = await remove_gone(store, sheets["resident_ledger"], guard=lease.guard(), part=50)
    assert removed == 120
    left = {key.rpartition("/")[2] for key in await contents(store) if key.startswith("resident_ledger/")}
    assert left == {str(n) for n in range(1, 361) if n % 3}


@sqlite
async def test_what_others_changed_in_the_store_is_put_right_by_a_whole_comparison(
    store: Store, source: Platform
) -> None:
    await take(store, source)
    await store.commit(delete(Resident, id_of("resident", 1)))
    assert sums(await take(store, source, trust_digests=True)) == NOTHING
    assert sums(await take(store, source)) == NOTHING | {"created": 1}


def test_a_table_is_compared_when_it_or_what_it_refers_to_is_not_as_it_was() -> None:
    def sheets(**digests: str) -> dict[str, CsvTable]:
        empty: Any = None
        return {t: CsvTable(t, empty, label=t, digest=digests.get(t, "same")) for t in TABLES}

    known = SourceState(source="s", tables={table: TableState(1, 0, "same") for table in TABLES})
    assert to_compare(sheets(), known) == []
    assert to_compare(sheets(), None) == list(TABLES)
    assert to_compare(sheets(resident_ledger="new"), known) == ["resident_ledger"]
    assert to_compare(sheets(units="new"), known) == [
        "units", "unit_pricing", "residents", "leases", "resident_ledger", "renewal_offers"
    ]  # fmt: skip
    known.tables["leases"] = TableState(1, 1, "")
    assert to_compare(sheets(), known) == ["leases", "renewal_offers"]
