"""A folder in which one row of a hundred is bad, of every kind, in every table: the rest is kept."""

from __future__ import annotations

import csv
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.reports import TableReport, write_aside
from holdfast.services.renewals.ingest.sources import Folder
from holdfast.services.renewals.models import TABLES
from holdfast.store import Store
from tests.services.renewals.platform_schema import everything, kept_in
from tests.services.renewals.test_import import write

EACH = 824
COLUMNS = {
    "properties": "id name city time_zone created_at",
    "unit_types": "id property_id name bedrooms bathrooms square_footage",
    "units": "id property_id unit_number floor status",
    "unit_pricing": "id unit_id base_rent market_rent effective_date",
    "residents": "id property_id unit_id first_name last_name status move_in_date",
    "leases": "id property_id resident_id lease_start_date lease_end_date monthly_rent lease_type",
    "resident_ledger": "id property_id resident_id transaction_type charge_code amount transaction_date",
    "renewal_offers": "id property_id resident_id lease_id status proposed_rent created_at",
}


def good(table: str) -> list[list[str]]:
    if table == "properties":
        return [["p1", "Mill House", "Łódź", "Europe/Warsaw", ""], ["p2", "Park Court", "", "", ""]]
    if table == "unit_types":
        return [[f"y{n}", "p1", f"{n} rooms", str(n), "1.5", "640"] for n in range(1, 5)]
    made: dict[str, Callable[[int], list[object]]] = {
        "units": lambda n: [f"u{n}", "p1", n, n % 9, "occupied"],
        "unit_pricing": lambda n: [f"c{n}", f"u{n}", "1400.00", "1600", "2026-01-01"],
        "residents": lambda n: [f"r{n}", "p1", f"u{n}", "Ada", f"Kim{n}", "active", "2025-03-01"],
        "leases": lambda n: [f"l{n}", "p1", f"r{n}", "2025-03-01", "2026-04-15", "1400.50", "fixed"],
        "resident_ledger": lambda n: [f"t{n}", "p1", f"r{n}", "payment", "rent", "1400.50", "2026-02-01"],
        "renewal_offers": lambda n: [f"o{n}", "p1", f"r{n}", f"l{n}", "pending", "1450", "2026-02-01 10:00Z"],
    }
    return [[str(cell) for cell in made[table](n)] for n in range(1, EACH + 1)]


class Bad(NamedTuple):
    """A row, the field that is wrong in it, and what that should have been."""

    cells: str
    field: str
    mended: str


BAD: dict[str, list[Bad]] = {
    "properties": [
        Bad("|Nameless|||", "id", "p3"),
        Bad("p~4|Other Place|||", "id", "p4"),
        Bad("p5|mill  HOUSE|||", "name", "Mill House East"),
        Bad("p6|Far Court||Mars/Olympus|", "time_zone", "America/Chicago"),
        Bad("p7||||", "name", "Seventh House"),
        Bad("p8|Eighth House|||yesterday", "created_at", "2026-01-01T00:00:00+02:00"),
    ],
    "unit_types": [
        Bad("y5|nowhere|Loft|1|1|600", "property_id", "p1"),
        Bad("y6|p1|Loft|two|1|600", "bedrooms", "2"),
        Bad("y7|p1|Loft|1|one and a half|600", "bathrooms", "1.5"),
        Bad("y8|p1||1|1|600", "name", "Loft"),
        Bad("y1|p1|Loft|1|1|600", "id", "y9"),
    ],
    "units": [
        Bad("v1|nowhere|1|1|occupied", "property_id", "p2"),
        Bad("v2|p1|2|1|burnt", "status", "available"),
        Bad("v3|p1|3|third|occupied", "floor", "3"),
        Bad("v4|p1||1|occupied", "unit_number", "4"),
        Bad("v/5|p1|5|1|occupied", "id", "v5"),
        Bad("u1|p1|6|1|occupied", "id", "v6"),
    ],
    "unit_pricing": [
        Bad("d1|nowhere|1400|1600|2026-02-01", "unit_id", "u1"),
        Bad("d2|u2|1,400|1600|2026-02-01", "base_rent", "1400"),
        Bad("d3|u3|1400|1e3|2026-02-01", "market_rent", "1000"),
        Bad("d4|u4|1400|1600|2026-02-30", "effective_date", "2026-02-28"),
        Bad("d5|u1|1400|1600|2026-01-01", "id", ""),
        Bad("d6|u6|1400||2026-02-01", "market_rent", "1600"),
        Bad("d7|u7|99999999999999999999|1600|2026-02-01", "base_rent", "1400"),
    ],
    "residents": [
        Bad("s1|p1|nowhere|Ada|Kim|active|", "unit_id", "u1"),
        Bad("s2|nowhere|u2|Ada|Kim|active|", "property_id", "p1"),
        Bad("s3|p1|u3|Ada|Kim|ghost|", "status", "moved_out"),
        Bad("s4|p1|u4|Ada|Kim|active|03/01/2026", "move_in_date", "2026-03-01"),
        Bad("s5|p1|u5||Kim|active|", "first_name", "Ada"),
        Bad("s" * 201 + "|p1|u6|Ada|Kim|active|", "id", "s6"),
        Bad("r1|p1|u7|Ada|Kim|active|", "id", "s7"),
    ],
    "leases": [
        Bad("m1|p1|r1|2025-03-01|soon|1400|fixed", "lease_end_date", "2026-05-01"),
        Bad("m2|p1|r2|2025-03-01|2026-04-15|$1400|fixed", "monthly_rent", "1400"),
        Bad("m3|p1|nobody|2025-03-01|2026-04-15|1400|fixed", "resident_id", "r3"),
        Bad("m4|p1|r4|2025-03-01||1400|fixed", "lease_end_date", "2026-04-15"),
        Bad("m5|p1|r5|2025-03-01|2024-01-01|1400|fixed", "lease_end_date", "2026-04-15"),
        Bad("m6|p1|r6|2025-03-01|2026-04-15|1400|forever", "lease_type", "fixed"),
        Bad("l1|p1|r7|2025-03-01|2026-04-15|1400|fixed", "id", "m7"),
        Bad("m8|p1|r8|2025-03-01|2026-04-15|14.005|fixed", "monthly_rent", "14.01"),
        Bad("m9|p1|no/body|2025-03-01|2026-04-15|1400|fixed", "resident_id", "r9"),
    ],
    "resident_ledger": [
        Bad("w1|p1|r1|refund|rent|10|2026-02-01", "transaction_type", "payment"),
        Bad("w2|p1|r2|payment|rent|12.345|2026-02-01", "amount", "12.35"),
        Bad("w3|p1|r3|payment|rent||2026-02-01", "amount", "10"),
        Bad("w4|p1|r4|payment|rent|10|", "transaction_date", "2026-02-01"),
        Bad("w5|p1|nobody|payment|rent|10|2026-02-01", "resident_id", "r5"),
        Bad("w6|nowhere|r6|payment|rent|10|2026-02-01", "property_id", "p1"),
    ],
    "renewal_offers": [
        Bad("q1|p1|r1|nothing|pending|1450|", "lease_id", "l1"),
        Bad("q2|p1|r2|l2|maybe|1450|", "status", "declined"),
        Bad("q3|p1|r3|l3|pending|free|", "proposed_rent", "0"),
        Bad("q4|p1|r4|l4|pending|1450|next week", "created_at", "2026-02-01T10:00:00Z"),
    ],
}
ROWS = sum(len(good(table)) + len(BAD[table]) for table in TABLES)
BAD_ROWS = sum(map(len, BAD.values()))


def mixed(table: str) -> tuple[list[Sequence[str]], dict[int, Bad]]:
    """The table with its bad rows spread among the good ones, and their row numbers, the header being 1."""
    fine, bad = good(table), BAD[table]
    rows: list[Sequence[str]] = list(fine)
    numbers = {}
    for place, one in enumerate(bad):
        at = min(len(fine), 1 + place * max(1, len(fine) // len(bad))) + place
        rows.insert(at, one.cells.split("|"))
        numbers[at + 2] = one
    return rows, numbers


@pytest.fixture
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    async with kept_in(request.getfixturevalue(f"{request.param}_url")) as made:
        yield made.tenant("-")


async def take(store: Store, folder: Path) -> dict[str, TableReport]:
    return {one.table: one for one in await Import(store, Folder(folder)).run()}


def mend(aside: Path, table: str) -> int:
    """Put right what a person would, in the file that the import set aside."""
    lines = list(csv.DictReader(aside.read_text(encoding="utf-8").splitlines()))
    _, numbers = mixed(table)
    for line in lines:
        bad = numbers[int(line["bad_row"])]
        assert line["bad_field"] == bad.field
        assert line["bad_reason"]
        # A second price of a day becomes the price of another day.
        field, value = (bad.field, bad.mended) if bad.mended else ("effective_date", "2026-03-01")
        line[field] = value
    write(aside.parent, table, " ".join(lines[0]), [list(line.values()) for line in lines])
    return len(lines)


def test_exactly_one_row_of_a_hundred_is_bad() -> None:
    assert (ROWS, BAD_ROWS) == (5_000, 50)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_the_rest_is_kept_each_bad_row_is_named_and_what_was_mended_goes_in(
    store: Store, tmp_path: Path
) -> None:
    expected = {}
    for table in TABLES:
        rows, numbers = mixed(table)
        write(tmp_path, table, COLUMNS[table], rows)
        expected[table] = [(number, bad.field) for number, bad in sorted(numbers.items())]
    first = await take(store, tmp_path)
    assert {t: [(one.row, one.field) for one in report.bad] for t, report in first.items()} == expected
    assert {t: report.created for t, report in first.items()} == {t: len(good(t)) for t in TABLES}
    before = await everything(store)
    assert len(before) == ROWS - BAD_ROWS

    again = await take(store, tmp_path)
    assert {t: report.bad for t, report in again.items()} == {t: report.bad for t, report in first.items()}
    assert sum(report.created + report.updated + report.removed for report in again.values()) == 0
    assert await everything(store) == before

    files = write_aside(tmp_path / "bad", [one for report in first.values() for one in report.bad])
    assert sum(mend(path, path.stem) for path in files) == BAD_ROWS
    mended = await take(store, tmp_path / "bad")
    assert [one for report in mended.values() for one in report.bad] == []
    assert sum(report.created for report in mended.values()) == BAD_ROWS
    assert len(await everything(store)) == ROWS
