"""Taking CSV files in: good rows are kept, bad ones named and set aside, and twice is the same as once."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from holdfast.app import open_store
from holdfast.errors import InvalidError
from holdfast.kit.leases import LeaseDocument
from holdfast.services.renewals.domain.dates import zone_named
from holdfast.services.renewals.domain.money import from_cents, to_cents
from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.reports import TableReport, write_aside
from holdfast.services.renewals.ingest.sources import Folder
from holdfast.services.renewals.jobs.resident_facts import Moment, Reading
from holdfast.services.renewals.models import (
    DOCUMENTS,
    LeaseRow,
    Property,
    PropertyName,
    Resident,
    UnitPricing,
)
from holdfast.store import Query, Store

RESIDENTS = 200


@pytest.fixture
async def store(sqlite_url: str) -> AsyncIterator[Store]:
    opened = await open_store(sqlite_url, [*DOCUMENTS, LeaseDocument])
    await opened.migrate()
    yield opened.tenant("-")
    await opened.close()


def write(folder: Path, table: str, header: str, rows: Sequence[Sequence[Any]]) -> None:
    with (folder / f"{table}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header.split())
        writer.writerows(rows)


def good_files(folder: Path, residents: int = RESIDENTS) -> None:
    ids = range(1, residents + 1)
    write(folder, "properties", "id name city", [["p-1", "Mill House", "Łódź"], ["p-2", "Park Court", ""]])
    write(folder, "units", "id property_id unit_number floor", [[f"u{n}", "p-1", n, n % 9] for n in ids])
    write(
        folder, "unit_pricing", "id unit_id base_rent market_rent effective_date",
        [[f"pr{n}", f"u{n}", "1400.00", "1600", "2026-01-01"] for n in ids],
    )  # fmt: skip
    write(
        folder, "residents", "id property_id unit_id first_name last_name status",
        [[f"r{n}", "p-1", f"u{n}", "Ada", f"Kim{n}", "active"] for n in ids],
    )  # fmt: skip
    write(
        folder, "leases",
        "id property_id resident_id lease_start_date lease_end_date monthly_rent lease_type status",
        [[f"l{n}", "p-1", f"r{n}", "2025-03-01", "2026-04-15", "1400.50", "fixed", "active"] for n in ids],
    )  # fmt: skip
    write(
        folder, "resident_ledger",
        "id property_id resident_id transaction_type charge_code amount transaction_date",
        [[f"t{n}", "p-1", f"r{n}", "payment", "rent", "1400.50", "2026-02-01"] for n in ids],
    )  # fmt: skip
    write(
        folder, "renewal_offers", "id property_id resident_id lease_id status created_at",
        [[f"o{n}", "p-1", f"r{n}", f"l{n}", "pending", "2026-02-01 10:00:00"] for n in ids],
    )  # fmt: skip


async def take(store: Store, folder: Path) -> dict[str, TableReport]:
    return {report.table: report for report in await Import(store, Folder(folder)).run()}


async def test_a_folder_is_taken_in_and_taken_again_changes_nothing(store: Store, tmp_path: Path) -> None:
    good_files(tmp_path)
    first = await take(store, tmp_path)
    assert {table: (one.created, len(one.bad)) for table, one in first.items()} == {
        "properties": (2, 0), "units": (RESIDENTS, 0), "unit_pricing": (RESIDENTS, 0),
        "residents": (RESIDENTS, 0), "leases": (RESIDENTS, 0), "resident_ledger": (RESIDENTS, 0),
        "renewal_offers": (RESIDENTS, 0),
    }  # fmt: skip
    again = await take(store, tmp_path)
    assert {(one.created, one.updated) for one in again.values()} == {(0, 0)}
    assert again["leases"].unchanged == RESIDENTS
    lease = await store.get(LeaseRow, "l1")
    assert lease is not None
    assert (str(lease.doc.monthly_rent), lease.doc.monthly_rent_cents) == ("1400.50", 140_050)
    price = await store.get(UnitPricing, "u1_2026-01-01")
    assert price is not None
    assert price.doc.property_id == "p-1"


async def test_what_was_taken_in_can_be_scored(store: Store, tmp_path: Path) -> None:
    good_files(tmp_path)
    await take(store, tmp_path)
    reading = Reading(store, Moment("p-1", date(2026, 3, 1), zone_named("")), page=70)
    known = [one async for page in reading.pages() for one in page]
    assert len(known) == await reading.count() == RESIDENTS
    facts = known[0].facts
    assert facts is not None
    assert (facts.has_offer, facts.market_rent, facts.ledger.paid) == (True, 160_000, 140_050)
    later = [one async for page in reading.pages(after=known[99].resident_id) for one in page]
    assert [one.resident_id for one in later] == [one.resident_id for one in known[100:]]


async def test_a_changed_row_is_changed(store: Store, tmp_path: Path) -> None:
    good_files(tmp_path, 3)
    await take(store, tmp_path)
    write(tmp_path, "properties", "id name", [["p-1", "Mill House Two"], ["p-2", "Park Court"]])
    report = (await take(store, tmp_path))["properties"]
    # The second property lost its (empty) city too, which changes nothing.
    assert (report.updated, report.unchanged) == (1, 1)
    assert await store.get(PropertyName, "name:mill house") is None


async def test_two_properties_of_one_name_are_refused(store: Store, tmp_path: Path) -> None:
    write(
        tmp_path, "properties", "id name", [["p-1", "Mill House"], ["p-2", "mill  HOUSE"], ["p~3", "Other"]]
    )
    report = (await take(store, tmp_path))["properties"]
    assert [(one.row, one.field) for one in report.bad] == [(3, "name"), (4, "id")]
    assert report.bad[0].reason == "another property is called 'mill  HOUSE'"
    assert await store.count(Query(Property).order_by("name")) == 1


async def test_a_missing_column_a_wrong_encoding_and_an_empty_folder_are_told(
    store: Store, tmp_path: Path
) -> None:
    with pytest.raises(InvalidError, match="holds none of"):
        await take(store, tmp_path)
    write(tmp_path, "residents", "id property_id", [["r1", "p-1"]])
    with pytest.raises(InvalidError, match="lacks the column 'unit_id'"):
        await take(store, tmp_path)
    (tmp_path / "residents.csv").write_bytes("id,property_id\nÄ,1\n".encode("latin-1"))
    with pytest.raises(InvalidError, match="UTF-8"):
        await take(store, tmp_path)
    assert await store.get(Resident, "r1") is None


@pytest.mark.parametrize(
    ("text", "cents"),
    [("1400", 140_000), ("1400.5", 140_050), ("-0.01", -1), ("0.10", 10), ("12.3400", 1_234)],
)
def test_amounts_are_read_exactly(text: str, cents: int) -> None:
    assert to_cents(text) == cents
    assert to_cents(from_cents(cents)) == cents


@pytest.mark.parametrize("text", ["", "1e3", "1,000", "1.005", "NaN", "٣", "--1", "1.", "0x10", "9" * 20])
def test_what_is_no_amount_is_refused(text: str) -> None:
    with pytest.raises(InvalidError):
        to_cents(text)


async def test_a_reason_is_told_of_the_rows_own_text(store: Store, tmp_path: Path) -> None:
    good_files(tmp_path, 1)
    rows = [["a", "p-1", "1", "third"], ["b", "p-1", "", "3"]]
    write(tmp_path, "units", "id property_id unit_number floor", rows)
    report = (await take(store, tmp_path))["units"]
    assert [one.reason for one in report.bad] == [
        "'third' does not fit: Expected `int | null`, got `str`", "must not be empty"
    ]  # fmt: skip


async def test_a_row_with_more_cells_than_the_header_is_set_aside_with_them(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "properties.csv").write_text(
        "id,name,address,city\np1,Mill House,1 Mill Lane,Leeds,,\np2,Park Court,2 Park Lane, flat 3,York\n",
        encoding="utf-8",
    )
    (report,) = await Import(store, Folder(tmp_path)).run()
    (bad,) = report.bad
    assert (report.created, bad.row, "is a comma not in quotes?" in bad.reason) == (1, 3, True)
    assert await store.get(Property, "p2") is None
    (aside,) = write_aside(tmp_path / "bad", report.bad)
    with aside.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["id"], row["city"], row["beyond_header"]) == ("p2", "flat 3", "York")


async def test_a_column_that_is_there_twice_is_refused_and_blanks_around_names_do_not_matter(
    store: Store, tmp_path: Path
) -> None:
    file = tmp_path / "properties.csv"
    file.write_text("id,name,city,name\np1,Mill House,Leeds,Leeds House\n", encoding="utf-8")
    with pytest.raises(InvalidError, match=r"properties.csv has the column 'name' twice"):
        await Import(store, Folder(tmp_path)).run()
    file.write_text("id, name ,city\np1,Mill House,Leeds\n", encoding="utf-8")
    (report,) = await Import(store, Folder(tmp_path)).run()
    assert (report.created, report.ignored_columns) == (1, [])
    found = await store.get(Property, "p1")
    assert found is not None
    assert found.doc.name == "Mill House"
