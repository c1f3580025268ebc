"""What can come between while a source is read: it empties or goes away, we are killed or too slow."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.errors import ConfigError, RetryLaterError
from holdfast.services.renewals.ingest.importer import Import
from holdfast.services.renewals.ingest.sources import Folder, open_source
from holdfast.store import Store
from tests.faults.controlled_process import run_processes
from tests.services.renewals.adjustable_clock import AdjustableClock
from tests.services.renewals.platform_schema import Platform, everything
from tests.services.renewals.source.mirror import (
    NOTHING,
    RESIDENTS,
    both,
    contents,
    sqlite,
    sums,
    take,
)
from tests.services.renewals.test_import import write

LEASE_S = 60.0


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
    store: Store, store_url: str, source: Platform, hands: AdjustableClock
) -> None:
    order = {"store": store_url, "source": source.url, "lease_s": LEASE_S, "until": "residents"}
    async with run_processes("tests.services.renewals.import_process", "take", order) as (process,):
        await process.hear_until("residents")
        await process.kill()
    made = await contents(store)
    assert 0 < len(made) < 500
    hands.moved = timedelta(seconds=LEASE_S)
    assert sums(await take(store, source)) == NOTHING | {"created": 628 - len(made)}


@sqlite
async def test_after_a_kill_no_digest_hides_what_was_half_kept(
    store: Store, store_url: str, source: Platform, hands: AdjustableClock
) -> None:
    await take(store, source)
    before = await contents(store)
    await source.owner.execute("CREATE TABLE public.was AS SELECT * FROM rop.residents")
    await source.owner.execute("UPDATE rop.residents SET last_name = 'Changed'")
    order = {"store": store_url, "source": source.url, "lease_s": LEASE_S, "until": "residents"}
    async with run_processes("tests.services.renewals.import_process", "take", order) as (process,):
        await process.hear_until("residents")
        await process.kill()
    assert await contents(store) != before
    await source.owner.execute(
        "UPDATE rop.residents r SET last_name = w.last_name FROM public.was w WHERE w.id = r.id"
    )
    hands.moved = timedelta(seconds=LEASE_S)
    await take(store, source, trust_digests=True)
    assert await contents(store) == before


@both
async def test_an_import_that_slept_through_its_lease_can_write_no_more(
    store: Store, store_url: str, source: Platform, hands: AdjustableClock
) -> None:
    order = {"store": store_url, "source": source.url, "lease_s": LEASE_S, "until": "residents"}
    async with run_processes("tests.services.renewals.import_process", "take", order) as (process,):
        await process.hear_until("residents")
        await source.owner.execute("UPDATE rop.leases SET monthly_rent = 1; DELETE FROM rop.renewal_offers")
        hands.moved = timedelta(seconds=LEASE_S)
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
