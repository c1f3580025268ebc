"""An existing PostgreSQL schema as the source: mirrored exactly, only ever read, whatever happens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import UTC, date, datetime
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from urllib.parse import unquote

import pytest

from holdfast.errors import ConfigError, HoldfastError, InvalidError, RetryLaterError
from holdfast.model import Document, schema_of
from holdfast.services.renewals.feeding.importing import Import, to_compare
from holdfast.services.renewals.feeding.removing import remove_gone
from holdfast.services.renewals.feeding.reports import TableReport
from holdfast.services.renewals.feeding.sources import Folder, Sheet, open_source, parse_address
from holdfast.services.renewals.feeding.sources.database import Database
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
from holdfast.services.renewals.sampling import name_key
from holdfast.store import Query, Store, create, delete
from holdfast.store.tally import TALLY
from tests.faults.puppet import puppets
from tests.services.renewals.platform import PASSWORD, Platform, id_of, kept_in, platform
from tests.services.renewals.test_importing import write

RESIDENTS = 60
MANY = int(os.environ.get("HOLDFAST_RENEWALS_SOURCE_RESIDENTS", "500"))
LEASE_S = 1.5


@pytest.fixture
async def source(postgres_url: str) -> AsyncIterator[Platform]:
    async with platform(postgres_url) as made:
        await made.fill(RESIDENTS)
        yield made


@pytest.fixture
def store_url(request: pytest.FixtureRequest) -> str:
    """Where the mirror is kept; on PostgreSQL beside the source, in the same database."""
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


@pytest.fixture
async def whole(store_url: str) -> AsyncIterator[Store]:
    async with kept_in(store_url) as store:
        yield store


@pytest.fixture
def store(whole: Store) -> Store:
    return whole.tenant("-")


engines = pytest.mark.parametrize("store_url", ["sqlite", "postgres", "firestore"], indirect=True)
both = pytest.mark.parametrize("store_url", ["sqlite", "postgres"], indirect=True)
sqlite = pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)


async def take(store: Store, source: Platform, **more: Any) -> dict[str, TableReport]:
    made = Import(store, open_source(source.url))
    return {one.table: one for one in await made.run(**more)}


def sums(reports: dict[str, TableReport]) -> dict[str, int]:
    names = ("created", "updated", "removed")
    return {name: sum(getattr(one, name) for one in reports.values()) for name in names} | {
        "bad": sum(len(one.bad) for one in reports.values())
    }


NOTHING = {"created": 0, "updated": 0, "removed": 0, "bad": 0}


async def everything(store: Store) -> dict[str, Document]:
    """All given rows of the portfolio, by table and id, each with its version."""
    found = {}
    for table, cls in TABLES.items():
        fields = [field.column.path for field in schema_of(cls).indexes[0].fields]
        async for item in store.scan(Query(cls).order_by(*fields).limit(500)):
            found[f"{table}/{item.key}@{item.version}"] = item.doc
    return found


async def contents(store: Store) -> dict[str, Document]:
    return {key.partition("@")[0]: doc for key, doc in (await everything(store)).items()}


async def doc(store: Store, cls: type[Document], id: str) -> Any:
    found = await store.get(cls, id)
    assert found is not None
    return found.doc


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
    assert (price.market_rent, price.property_id) == (160_010, id_of("property", 2))
    resident = await doc(store, Resident, id_of("resident", 7))
    assert (resident.move_in_date, resident.move_out_date, resident.phone) == (date(2024, 2, 29), None, "")
    assert (await doc(store, LeaseRow, id_of("lease", 7))).monthly_rent == 140_010
    assert (await doc(store, LedgerRow, "7")).amount == 140_010
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
    reads, writes, began, worked = TALLY.reads, TALLY.writes, perf_counter(), process_time()
    assert all(one.same for one in (await take(store, source, trust_digests=True)).values())
    took_s, work_s = perf_counter() - began, process_time() - worked
    # The lease taken, guarded and released, the state read and written, whether there are properties.
    assert max(TALLY.reads - reads, TALLY.writes - writes) <= 6
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
    assert (await doc(store, LeaseRow, id_of("lease", 3))).monthly_rent == 199_999
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
async def test_rows_whose_resident_is_gone_are_named_every_time(store: Store, source: Platform) -> None:
    await take(store, source)
    await source.owner.execute("DELETE FROM rop.residents WHERE id = rop.id_of('resident', 5)")
    told = []
    for trust in (True, True, False):
        reports = await take(store, source, trust_digests=trust)
        told.append({(one.table, one.row, one.field) for report in reports.values() for one in report.bad})
    assert told[0] == told[1] == told[2]
    assert len(told[0]) == 1 + 6 + 1
    assert {field for _, _, field in told[0]} == {"resident_id"}


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


BAD = {
    "UPDATE rop.leases SET lease_end_date = '2020-01-01' WHERE id = rop.id_of('lease', 1)": (
        "leases", id_of("lease", 1), "lease_end_date"
    ),
    "UPDATE rop.leases SET lease_start_date = 'infinity' WHERE id = rop.id_of('lease', 2)": (
        "leases", id_of("lease", 2), "lease_start_date"
    ),
    "UPDATE rop.leases SET monthly_rent = 1400.005 WHERE id = rop.id_of('lease', 3)": (
        "leases", id_of("lease", 3), "monthly_rent"
    ),
    "UPDATE rop.leases SET lease_type = 'forever' WHERE id = rop.id_of('lease', 4)": (
        "leases", id_of("lease", 4), "lease_type"
    ),
    "UPDATE rop.residents SET unit_id = rop.id_of('unit', 999) WHERE id = rop.id_of('resident', 5)": (
        "residents", id_of("resident", 5), "unit_id"
    ),
    "UPDATE rop.resident_ledger SET amount = 'NaN' WHERE id = 6": ("resident_ledger", "6", "amount"),
    "UPDATE rop.residents SET last_name = repeat('x', 200000) WHERE id = rop.id_of('resident', 6)": (
        "residents", id_of("resident", 6), "last_name"
    ),
    "UPDATE rop.renewal_offers SET created_at = '-infinity' WHERE id = rop.id_of('offer', 5)": (
        "renewal_offers", id_of("offer", 5), "created_at"
    ),
    "UPDATE rop.properties SET name = '' WHERE id = rop.id_of('property', 2)": (
        "properties", id_of("property", 2), "name"
    ),
}  # fmt: skip


@both
async def test_rows_that_do_not_fit_are_named_by_their_ids_and_stay_as_they_were(
    store: Store, source: Platform
) -> None:
    await take(store, source)
    before = await contents(store)
    for statement in BAD:
        await source.owner.execute(statement)
    reports = await take(store, source, trust_digests=True)
    told = {(one.table, one.row, one.field) for report in reports.values() for one in report.bad}
    assert told == set(BAD.values())
    assert (sums(reports)["removed"], await contents(store)) == (0, before)
    state = await doc(store, SourceState, "-")
    assert {(one.table, one.row, one.field) for one in state.bad_rows} == told
    assert not any(one.values for one in state.bad_rows)
    # Looked at again every time, until they are mended.
    again = await take(store, source, trust_digests=True)
    assert sums(again)["bad"] == len(BAD)
    mend = "lease_end_date = '2026-04-15', lease_start_date = '2025-03-01', monthly_rent = 1400.1"
    await source.owner.execute(f"UPDATE rop.leases SET {mend}, lease_type = 'fixed'")
    assert [one.row for one in (await take(store, source, trust_digests=True))["leases"].bad] == []


@sqlite
async def test_rows_of_a_view_that_share_an_id_are_refused_after_the_first(
    store: Store, source: Platform
) -> None:
    await source.owner.execute(
        """
        ALTER TABLE rop.leases RENAME TO leases_kept;
        CREATE VIEW rop.leases AS SELECT * FROM rop.leases_kept UNION ALL
            SELECT * FROM rop.leases_kept WHERE id = rop.id_of('lease', 9);
        GRANT SELECT ON ALL TABLES IN SCHEMA rop TO PUBLIC;
        """
    )
    for _ in range(2):
        report = (await take(store, source))["leases"]
        assert [(one.row, one.field) for one in report.bad] == [(id_of("lease", 9), "id")]
    assert report.unchanged == RESIDENTS


@sqlite
async def test_an_emptied_source_removes_nothing(store: Store, source: Platform) -> None:
    await take(store, source)
    before = await everything(store)
    await source.owner.execute("TRUNCATE rop.properties CASCADE")
    with pytest.raises(ConfigError, match="holds no properties"):
        await take(store, source)
    assert await everything(store) == before


@sqlite
async def test_data_from_elsewhere_is_replaced_only_when_that_is_meant(
    store: Store, source: Platform, tmp_path: Path
) -> None:
    write(tmp_path, "properties", "id name", [["p-1", "Mill House"]])
    await Import(store, Folder(tmp_path)).run()
    before = await everything(store)
    for _ in range(2):
        with pytest.raises(ConfigError, match=f"came from {tmp_path.name}, and what is not in .* --replace"):
            await take(store, source)
    assert await everything(store) == before
    database = open_source(source.url)
    reports = await Import(store, database, replace=True).run()
    assert (reports[0].created, reports[0].removed) == (2, 1)
    assert sums(await take(store, source)) == NOTHING


@both
async def test_a_source_that_goes_away_in_the_middle_leaves_everything_untouched(
    store: Store, source: Platform
) -> None:
    await source.gate()
    await take(store, source)
    before = await everything(store)
    await source.owner.execute("UPDATE rop.leases SET monthly_rent = 1; DELETE FROM rop.resident_ledger")
    async with source.held():
        importing = asyncio.create_task(take(store, source))
        await source.owner.execute(f"SELECT pg_terminate_backend({await source.waiting_reader()})")
        with pytest.raises(RetryLaterError, match=r"can't be read: .*; nothing was changed"):
            await importing
    assert await everything(store) == before
    assert sums(await take(store, source)) == NOTHING | {"updated": RESIDENTS, "removed": 360}


@sqlite
async def test_all_tables_are_read_as_at_one_moment(store: Store, source: Platform) -> None:
    await source.gate()
    async with source.held():
        importing = asyncio.create_task(take(store, source))
        await source.waiting_reader()
        # Both lie in tables that are still to be read, or have been: neither may show.
        await source.owner.execute("DELETE FROM rop.offers_kept; DELETE FROM rop.resident_ledger")
    assert (await importing)["renewal_offers"].rows == 24
    assert sums(await take(store, source))["removed"] == 24 + 360


@both
async def test_an_import_that_was_killed_is_gone_on_with(
    whole: Store, store: Store, store_url: str, source: Platform
) -> None:
    order = {"store": store_url, "source": source.url, "lease_s": LEASE_S, "until": "residents"}
    async with puppets("tests.services.renewals.imports", "take", order) as (process,):
        await process.hear_until("residents")
        await process.kill()
    made = await contents(store)
    assert 0 < len(made) < 500
    assert sums(await take(store, source)) == NOTHING | {"created": 628 - len(made)}


@sqlite
async def test_after_a_kill_no_digest_hides_what_was_half_kept(
    whole: Store, store: Store, store_url: str, source: Platform
) -> None:
    await take(store, source)
    before = await contents(store)
    await source.owner.execute("CREATE TABLE public.was AS SELECT * FROM rop.residents")
    await source.owner.execute("UPDATE rop.residents SET last_name = 'Changed'")
    order = {"store": store_url, "source": source.url, "lease_s": LEASE_S, "until": "residents"}
    async with puppets("tests.services.renewals.imports", "take", order) as (process,):
        await process.hear_until("residents")
        await process.kill()
    assert await contents(store) != before
    await source.owner.execute(
        "UPDATE rop.residents r SET last_name = w.last_name FROM public.was w WHERE w.id = r.id"
    )
    await take(store, source, trust_digests=True)
    assert await contents(store) == before


@both
async def test_an_import_that_slept_through_its_lease_can_write_no_more(
    store: Store, store_url: str, source: Platform
) -> None:
    order = {"store": store_url, "source": source.url, "lease_s": LEASE_S, "until": "residents"}
    async with puppets("tests.services.renewals.imports", "take", order) as (process,):
        await process.hear_until("residents")
        await source.owner.execute("UPDATE rop.leases SET monthly_rent = 1; DELETE FROM rop.renewal_offers")
        await take(store, source)
        newer = await everything(store)
        process.resume()
        assert (await process.end())[-1] == "lost"
    assert await everything(store) == newer


@both
async def test_of_two_imports_at_once_one_works_and_the_other_finds_it_done(
    store: Store, source: Platform
) -> None:
    first, second = await asyncio.gather(take(store, source), take(store, source))
    assert sorted([sums(first)["created"], sums(second)["created"]]) == [0, 628]
    assert sums(first)["bad"] == sums(second)["bad"] == 0


@sqlite
async def test_what_others_changed_in_the_store_is_put_right_by_a_whole_comparison(
    store: Store, source: Platform
) -> None:
    await take(store, source)
    await store.commit(delete(Resident, id_of("resident", 1)))
    assert sums(await take(store, source, trust_digests=True)) == NOTHING
    assert sums(await take(store, source)) == NOTHING | {"created": 1}


async def missing_table(source: Platform) -> None:
    await source.owner.execute("DROP TABLE rop.renewal_offers; ALTER TABLE rop.leases RENAME TO lets")


async def missing_column(source: Platform) -> None:
    await source.owner.execute(
        "ALTER TABLE rop.leases DROP monthly_rent; ALTER TABLE rop.residents DROP email"
    )


async def denied_table(source: Platform) -> None:
    await source.owner.execute(f"REVOKE SELECT ON rop.leases FROM {_reader(source)}")


async def denied_schema(source: Platform) -> None:
    await source.owner.execute(f"REVOKE USAGE ON SCHEMA rop FROM {_reader(source)}")


async def no_schema(source: Platform) -> None:
    source.url = source.url.replace("schema=rop", "schema=rob")


async def no_database(source: Platform) -> None:
    source.url = source.url.replace("?schema", "_gone?schema")


async def no_user(source: Platform) -> None:
    source.url = source.url.replace(_reader(source), "nobody_known")


async def no_host(source: Platform) -> None:
    source.url = source.url.replace(source.address.partition("/")[0], "127.0.0.1:1")


async def unknown_option(source: Platform) -> None:
    source.url += "&schemes=rop"


async def bad_option(source: Platform) -> None:
    source.url += "&sslmode=perhaps"


def _reader(source: Platform) -> str:
    return source.url.removeprefix("postgresql://").partition(":")[0]


@sqlite
@pytest.mark.parametrize(
    ("spoil", "kind", "said"),
    [
        (missing_table, ConfigError, "lacks the table leases, the table renewal_offers; add"),
        (missing_column, ConfigError, "lacks the column leases.monthly_rent; add"),
        (denied_table, ConfigError, "permission denied for table leases; the user needs"),
        (denied_schema, ConfigError, "permission denied for schema rop; the user needs"),
        (no_schema, ConfigError, "there is no schema 'rob'"),
        (no_database, ConfigError, "does not exist; correct the source's URL"),
        (no_user, ConfigError, 'role "nobody_known" does not exist; correct'),
        (no_host, RetryLaterError, "can't be read: "),
        (unknown_option, HoldfastError, "schemes"),
        (bad_option, ConfigError, "the driver can't use this URL"),
    ],
    ids=lambda value: value.__name__ if callable(value) else None,
)
async def test_a_source_that_cannot_be_read_is_told_in_one_sentence_without_its_password(
    store: Store, source: Platform, spoil: Any, kind: type[HoldfastError], said: str
) -> None:
    await spoil(source)
    with pytest.raises(kind) as raised:
        await take(store, source)
    message = raised.value.message
    assert said in message
    assert "\n" not in message
    assert PASSWORD not in unquote(message)
    assert await everything(store) == {}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:zq/zq@host/db", "postgresql://u:zq?zq@host/db", "postgresql://u:zq#zq@host/db",
        "postgresql://u:zq@host:port/db", "postgresql://[u:zq@host/db", "postgresql:/u:zq@host/db",
        "postgresql://u:zq@host/db?schema=", "mysql://u:zq@host/db",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_understood_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(InvalidError) as raised:
        open_source(url)
    assert "zq" not in raised.value.message


def test_an_address_shows_neither_user_nor_password_nor_options() -> None:
    found = parse_address("postgres://u:p%40ss@db.example:6432/platform?schema=r%20op&sslmode=require")
    assert (found.schema, found.name) == ("r op", "postgresql://db.example:6432/platform?schema=r op")
    assert found.dsn == "postgres://u:p%40ss@db.example:6432/platform?sslmode=require"
    assert "p%40ss" not in repr(found)
    assert parse_address("postgresql://u@db/x").schema == "public"


def test_a_table_is_compared_when_it_or_what_it_refers_to_is_not_as_it_was() -> None:
    def sheets(**digests: str) -> dict[str, Sheet]:
        empty: Any = None
        return {t: Sheet(t, empty, label=t, digest=digests.get(t, "same")) for t in TABLES}

    known = SourceState(source="s", tables={table: TableState(1, 0, "same") for table in TABLES})
    assert to_compare(sheets(), known) == []
    assert to_compare(sheets(), None) == list(TABLES)
    assert to_compare(sheets(resident_ledger="new"), known) == ["resident_ledger"]
    assert to_compare(sheets(units="new"), known) == [
        "units", "unit_pricing", "residents", "leases", "resident_ledger", "renewal_offers"
    ]  # fmt: skip
    known.tables["leases"] = TableState(1, 1, "")
    assert to_compare(sheets(), known) == ["leases", "renewal_offers"]
