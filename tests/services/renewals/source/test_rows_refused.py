"""Rows of a source that do not fit: named, and what they would change stays as it was."""

from __future__ import annotations

from holdfast.services.renewals.models import SourceState
from holdfast.store import Store
from tests.services.renewals.platform_schema import Platform, id_of
from tests.services.renewals.source.mirror import RESIDENTS, both, contents, doc, sqlite, sums, take


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
